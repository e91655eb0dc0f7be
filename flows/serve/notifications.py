"""`rpg notify`: Prefect calls a web address, or sends by a notification block, when a night is red
or has not ended."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from flows.prefect.server import SERVE_LOCK, quiet_environment, using_api
from flows.prefect.service import ServerError
from flows.serve.services import client_environment
from rpg import next_steps
from rpg.config.errors import ConfigError
from rpg.errors import first_line
from rpg.store import Layout, locks

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

AUTOMATIONS = Path(__file__).with_name("automations.yaml")
BLOCK = "rpg-lab"
"""The name of the webhook's block."""
_NAMED_BLOCK = re.compile(r"([a-z0-9-]+)/([a-z0-9-]+)")


def notify(layout: Layout, target: str, secret: str | None) -> list[str]:
    """Create the automations of a data folder's server, or give them another target: a web address,
    or a notification block `type/name`. Returns their names. Raises ConfigError: the target is
    neither, or nobody serves this folder; ServerError: the server refuses."""
    is_address = target.startswith(("http://", "https://"))
    if not is_address and not _NAMED_BLOCK.fullmatch(target):
        raise ConfigError(
            f"{target!r}: expected a web address, e.g. https://hooks.example.org/lab, or a "
            "notification block as TYPE/NAME, e.g. slack-webhook/lab"
        )
    served = layout.home / SERVE_LOCK
    api = locks.note(served).get("api") if locks.alive(served) else None
    if not api:
        start = next_steps.command("serve", layout=layout)
        raise ConfigError(f"no rpg serve is running for {layout.home}; start it first: {start}")
    os.environ.update(quiet_environment(layout.home) | client_environment(secret))
    from prefect.client.orchestration import get_client

    with using_api(str(api)), get_client(sync_client=True) as client:
        try:
            block = _webhook(target) if is_address else _existing(client, target)
            names = []
            for automation in automations():
                act = action(automation.pop("message"), block, is_address)
                names.append(_created(client, automation, act))
            return names
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 (of the network, of httpx and of Prefect)
            raise ServerError(f"{api}: {first_line(error)}") from None


def automations() -> list[dict[str, Any]]:
    """What is created: when, and the message."""
    return list(yaml.safe_load(AUTOMATIONS.read_text("utf-8")))


def action(message: str, block: str, is_address: bool) -> dict[str, Any]:
    """Send a message, which is a template of Prefect's."""
    if is_address:
        payload = f'{{"text": {{{{ ({message}) | tojson }}}}}}'
        return {"type": "call-webhook", "block_document_id": block, "payload": payload}
    body = f"{{{{ {message} }}}}"
    return {
        "type": "send-notification",
        "block_document_id": block,
        "subject": "rpg-lab",
        "body": body,
    }


def _webhook(address: str) -> str:
    """The id of the block that calls this address."""
    from prefect.blocks.webhook import Webhook

    webhook = Webhook(method="POST", url=address, allow_private_urls=True)
    return str(webhook.save(BLOCK, overwrite=True))


def _existing(client: SyncPrefectClient, name: str) -> str:
    """The id of a block that somebody has made. Raises ConfigError: there is none."""
    from prefect.exceptions import ObjectNotFound

    kind, _, own = name.partition("/")
    try:
        return str(client.read_block_document_by_name(own, kind).id)
    except ObjectNotFound:
        raise ConfigError(
            f"{name}: the server has no such block; make one in its UI, under Blocks"
        ) from None


def _created(client: SyncPrefectClient, wanted: Mapping[str, Any], act: Mapping[str, Any]) -> str:
    """Create an automation, or change the one of this name; returns the name."""
    from prefect.automations import AutomationCore

    one = AutomationCore.model_validate({**wanted, "actions": [act]})
    before = client.read_automations_by_name(one.name)
    if before:
        client.update_automation(before[0].id, one)
    else:
        client.create_automation(one)
    return str(one.name)
