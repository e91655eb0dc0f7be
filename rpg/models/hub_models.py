"""A model on the Hugging Face hub before it is loaded: which commit is meant, and its
configuration."""

from pathlib import Path

from rpg.errors import first_line
from rpg.tasks.problems import DataError
from rpg.tasks.rows import hub_client


def hub_commit(model: str, revision: str | None = None) -> str:
    """The commit that a revision of a model on the hub is at, see hub_file."""
    return hub_file(model, revision).parent.name


def hub_file(model: str, revision: str | None = None) -> Path:
    """The configuration of a model on the hub; asks the hub once, if it was not fetched before.
    Raises DataError: it has no such model, or cannot be reached.
    """
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - only where a model is not on this machine
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415 - as above

    with hub_client() as answers:
        try:
            return Path(hf_hub_download(model, "config.json", revision=revision))
        except (OSError, ValueError, HfHubHTTPError) as error:
            missing = f"is neither a local folder nor a model on the hub ({first_line(error)})"
            unreachable = (
                "is not a local folder, and the hub cannot be reached: copy the model's "
                "folder to this machine and give its "
                "path, or fetch it where there is a network (rpg model)"
            )
            raise DataError(f"model {model!r} {missing if answers else unreachable}") from None
