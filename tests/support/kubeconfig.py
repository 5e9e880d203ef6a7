"""The file from which clients of Kubernetes learn where it is, and who they are."""

from __future__ import annotations

from typing import Any


def kubeconfig(token: str, **cluster: str) -> dict[str, Any]:
    """Return the content of a file with one cluster and one user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "me"}}],
        "current-context": "c",
    }
