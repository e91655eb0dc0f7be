"""The specification of a run, from its manifest."""

from pydantic import ValidationError

from rpg.config.errors import explain
from rpg.config.run_spec import RunSpec
from rpg.store.run_folder import RunFolder


def spec_of(folder: RunFolder) -> RunSpec:
    """The resolved specification in a run's manifest. Raises StoreError: there is no readable
    manifest; ConfigError: this version does not understand its specification.
    """
    manifest = folder.read_manifest()
    try:
        return RunSpec.model_validate(manifest["spec"])
    except ValidationError as error:
        raise explain(error, RunSpec, str(folder.manifest_path)) from error
