"""Which pages there are, and what each takes."""

from __future__ import annotations

from typing import Final

from app.features.audit import page as audit
from app.features.database import page as horizon
from app.features.dead_letters import page as clusters
from app.features.dead_letters import purge_page as purge
from app.features.dead_letters import requeue_page as requeue
from app.features.dead_letters import rows_page as rows
from app.features.explain import as_of_page as asof
from app.features.jobs import actions_page as actions
from app.features.jobs import cancel_page as cancels
from app.features.jobs import list_page as listing
from app.features.jobs import operation_page as operation
from app.features.jobs import page as job
from app.features.people import keys_page as keys
from app.features.people import users_page as users
from app.features.saved_views import page as saved
from app.features.stats import home_page as home
from app.features.topics import config_page as config
from app.features.topics import list_page as topics
from app.features.topics import page as topic
from app.features.upkeep import page as reapers
from app.features.webhooks import page as webhooks
from app.pages.frame import Page
from app.pages.permissions import (
    CHANGE_JOBS,
    CHANGE_KEYS,
    CHANGE_USERS,
    CONFIGURE,
    CONTROL,
    KEEP_VIEWS,
    PURGE,
    REAP,
    REQUEUE,
    SEE,
    SEE_RIGHTS,
    SEE_SERVER,
)

PAGES: Final = (
    Page("GET", "/", SEE, home.show),
    Page("GET", "/find", SEE, topics.find),
    Page("POST", "/views", KEEP_VIEWS, saved.save),
    Page("POST", "/views/delete", KEEP_VIEWS, saved.delete),
    Page("GET", "/topics", SEE, topics.show),
    Page("GET", "/topics/{topic}", SEE, topic.show),
    Page("GET", "/topics/{topic}/jobs", SEE, listing.show),
    Page("GET", "/topics/{topic}/jobs/cancel", CHANGE_JOBS, cancels.ask),
    Page("POST", "/topics/{topic}/jobs/cancel", CHANGE_JOBS, cancels.begin),
    Page("GET", "/topics/{topic}/jobs/operations/{id}", SEE, operation.show),
    Page("POST", "/topics/{topic}/jobs/operations/{id}/cancel", CHANGE_JOBS, operation.cancel),
    Page("GET", "/topics/{topic}/jobs/{seq}", SEE, job.show),
    Page("POST", "/topics/{topic}/jobs/{seq}/cancel", CHANGE_JOBS, actions.cancel),
    Page("POST", "/topics/{topic}/jobs/{seq}/change", CHANGE_JOBS, actions.change),
    Page("POST", "/topics/{topic}/jobs/{seq}/clone", CHANGE_JOBS, actions.clone),
    Page("POST", "/topics/{topic}/jobs/{seq}/requeue", CHANGE_JOBS, actions.requeue),
    Page("POST", "/topics/{topic}/jobs/{seq}/release", CHANGE_JOBS, actions.take_back),
    Page("POST", "/topics/{topic}/release", CHANGE_JOBS, topic.take_back),
    Page("POST", "/topics/{topic}/pause", CONTROL, topic.pause),
    Page("POST", "/topics/{topic}/resume", CONTROL, topic.resume),
    Page("GET", "/topics/{topic}/dead", SEE, clusters.show),
    Page("GET", "/topics/{topic}/dead/jobs", SEE, rows.show),
    Page("GET", "/topics/{topic}/dead/requeue", REQUEUE, requeue.ask),
    Page("POST", "/topics/{topic}/dead/requeue", REQUEUE, requeue.begin),
    Page("GET", "/topics/{topic}/dead/operations/{id}", SEE, operation.show),
    Page("POST", "/topics/{topic}/dead/operations/{id}/cancel", REQUEUE, operation.cancel),
    Page("GET", "/topics/{topic}/dead/purge", PURGE, purge.ask),
    Page("POST", "/topics/{topic}/dead/purge", PURGE, purge.run),
    Page("GET", "/topics/{topic}/config", SEE, config.show),
    Page("POST", "/topics/{topic}/config", CONFIGURE, config.review),
    Page("POST", "/topics/{topic}/config/save", CONFIGURE, config.save),
    Page("GET", "/topics/{topic}/config/undo/{entry}", CONFIGURE, config.undo),
    Page("GET", "/topics/{topic}/asof", SEE, asof.show),
    Page("GET", "/horizon", SEE_SERVER, horizon.show),
    Page("GET", "/reapers", SEE_SERVER, reapers.show),
    Page("GET", "/reapers/{name}", SEE_SERVER, reapers.earlier),
    Page("POST", "/reapers/{name}/run", REAP, reapers.run),
    Page("POST", "/reapers/delete/schedule", REAP, reapers.reschedule),
    Page("GET", "/webhooks", SEE_SERVER, webhooks.show),
    Page("GET", "/keys", SEE_RIGHTS, keys.show),
    Page("GET", "/keys/new", SEE_RIGHTS, keys.ask),
    Page("POST", "/keys/new", CHANGE_KEYS, keys.make),
    Page("GET", "/keys/{id}", SEE_RIGHTS, keys.one),
    Page("POST", "/keys/{id}/rotate", CHANGE_KEYS, keys.rotate),
    Page("POST", "/keys/{id}/revoke", CHANGE_KEYS, keys.revoke),
    Page("GET", "/users", SEE_SERVER, users.show),
    Page("GET", "/users/new", SEE_SERVER, users.ask),
    Page("POST", "/users/new", CHANGE_USERS, users.make),
    Page("GET", "/users/{id}", SEE_SERVER, users.one),
    Page("POST", "/users/{id}", CHANGE_USERS, users.change),
    Page("POST", "/users/{id}/delete", CHANGE_USERS, users.delete),
    Page("POST", "/users/{id}/grants", CHANGE_USERS, users.grant),
    Page("POST", "/users/{id}/grants/{grant}/revoke", CHANGE_USERS, users.take_back),
    Page("GET", "/audit", SEE_RIGHTS, audit.show),
)
