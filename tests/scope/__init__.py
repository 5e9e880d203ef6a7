"""The SCOPE engine against the emulator."""
