"""Routes of models: list, add, test, remove, choose the default. For administrators of the server's own tenant."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from palaver.core.rights import require_right
from palaver.errors import PermissionDenied
from palaver.model import ADMIN
from palaver.server.auth import Caller
from palaver.server.components import Services
from palaver.server.dependencies import CallerDep, Reply, ServicesDep, sent_fields
from palaver.server.model_settings import ModelSettings
from palaver.server.rest import schemas

ModelName = Annotated[str, Query(min_length=1, max_length=100, description="Name of the model.")]


def may_manage(services: Services, caller: Caller) -> bool:
    """Return whether the caller may manage models here. They are the server's, so other tenants' admins may not."""
    scope = caller.scope
    has_place = services.model_settings.path is not None
    return has_place and ADMIN in scope.rights and scope.tenant == services.settings.tenant


async def _managed(services: Services, caller: Caller) -> ModelSettings:
    require_right(caller.scope, ADMIN)
    if caller.scope.tenant != services.settings.tenant:
        raise PermissionDenied(ADMIN)
    await services.model_settings.refresh()
    return services.model_settings


def _reply(models: ModelSettings) -> Response:
    return Reply({"items": models.listed(), "default": models.registry.default, "hosts": list(models.hosts)})


async def list_server_models(services: ServicesDep, caller: CallerDep) -> Response:
    """List the server's models, without keys. Needs the right `admin` in the server's own tenant."""
    return _reply(await _managed(services, caller))


async def put_server_model(services: ServicesDep, caller: CallerDep, body: schemas.ServerModel) -> Response:
    """Add a model, or change one that was added. Its API key is stored, but never returned. Needs the right `admin`."""
    models = await _managed(services, caller)
    fields = {name: value for name, value in sent_fields(body).items() if value is not None}
    await models.put(fields.pop("name"), fields)
    return _reply(models)


async def delete_server_model(services: ServicesDep, caller: CallerDep, name: ModelName) -> Response:
    """Remove a model that was added, with its API key. Needs the right `admin`."""
    models = await _managed(services, caller)
    await models.remove(name)
    return _reply(models)


async def try_server_model(services: ServicesDep, caller: CallerDep, body: schemas.ServerModelName) -> Response:
    """Send a short request to a model, and report whether it answers. Needs the right `admin`."""
    models = await _managed(services, caller)
    return Reply(await models.test(body.name))


async def choose_server_model(services: ServicesDep, caller: CallerDep, body: schemas.ServerModelName) -> Response:
    """Make a model the default of the server. Needs the right `admin`."""
    models = await _managed(services, caller)
    await models.choose(body.name)
    return _reply(models)
