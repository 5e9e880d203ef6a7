"""The hooks: what a connection says, as whom they talk, and what they pass on."""
