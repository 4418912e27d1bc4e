"""Secrets: the names whose values are masked wherever they are shown: settings, fields of requests, properties.

The values are masked by those who show them: ``config.store_config``, ``remoting.declared``, ``remoting.wire_log``.
"""

from __future__ import annotations

import re

# Shown instead of every secret, so that its length tells nothing.
MASK = "***"

# Parts of names that upstream, its plug-ins and users give to secrets. "pass" counts at the end only: it is part of
# other words, such as "passive".
_SECRET = re.compile(r"passw|pass$|secret|token|credential|private_?key", re.IGNORECASE)
# A member of JSON in a value: a user with its password, under any name of the setting.
_SECRET_INSIDE = re.compile(r"(?:password|secret_?key)\\?\"?\s*:", re.IGNORECASE)


def is_secret(name: str, value: str = "") -> bool:
    """Return whether a value must be masked, because of its name or of a secret inside it."""
    return _SECRET.search(name) is not None or _SECRET_INSIDE.search(value) is not None
