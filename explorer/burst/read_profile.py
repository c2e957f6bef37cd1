"""Load a profile by shipped name or file."""

from __future__ import annotations

from pathlib import Path

from explorer.burst.profile import Profile
from explorer.burst.profile_json import profile_of_json
from explorer.burst.profile_table import profile_of_table
from explorer.burst.profile_text import is_text_profile, profile_of_text
from explorer.errors import InputError, Problem, nearest

MAX_BYTES = 16 << 20


def training_folder() -> Path:
    """Folder of the shipped training scenarios: in the checkout, or in an installed package."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_scenarios" / "training"
    return installed if installed.is_dir() else package.parent / "scenarios" / "training"


def profile_names() -> list[str]:
    """Names of the shipped profiles, sorted."""
    return sorted(path.stem for path in (training_folder() / "profiles").glob("*.json"))


def load_profile(spec: str) -> Profile:
    """Load a profile.

    Parameters
    ----------
    spec
        Name of a shipped profile (``vgg16``), or a file: JSON, either of DeepPool's text layouts,
        or a hand-written YAML table.

    Raises
    ------
    InputError
        If there is no such profile, or it is malformed.
    """
    path = Path(spec)
    if "/" not in spec and not path.is_file():
        path = training_folder() / "profiles" / f"{spec}.json"
        if not path.is_file():
            raise InputError(
                Problem("--profile", f"got {spec!r}, {nearest(spec, profile_names())}; or a file")
            )
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise InputError(Problem(spec, f"is larger than {MAX_BYTES >> 20} MiB: no profile"))
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(Problem(spec, f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise InputError(Problem(spec, "is not UTF-8 text")) from None
    name = path.name
    if text.lstrip().startswith("{"):
        return profile_of_json(text, name)
    if is_text_profile(text):
        return profile_of_text(text, name)
    return profile_of_table(text, name)
