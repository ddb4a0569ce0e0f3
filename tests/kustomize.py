"""As much of kustomize as deploy/kubernetes uses: resources, JSON Patches, images, a namespace, config maps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

KNOWN: Final = {"apiVersion", "kind", "namespace", "resources", "patches", "images", "configMapGenerator"}
CLUSTER_WIDE: Final = {"Namespace"}
Manifest = dict[str, Any]


def documents(path: Path) -> list[Manifest]:
    """What a file has."""
    return [one for one in YAML(typ="safe").load_all(path.read_text()) if one]


def build(folder: Path) -> list[Manifest]:
    """What `kustomize build` makes of a folder, without the hashes in names of config maps. AssertionError for what is
    not there, not known here, or doesn't fit."""
    [plan] = documents(folder / "kustomization.yaml")
    assert set(plan) <= KNOWN, f"{folder}: {set(plan) - KNOWN}"
    assert (plan["apiVersion"], plan["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    made: list[Manifest] = []
    for name in plan["resources"]:
        path = folder / name
        assert path.exists(), f"{folder}: there is no {name}"
        made += build(path) if path.is_dir() else documents(path)
    made += [_config_map(folder, one) for one in plan.get("configMapGenerator", [])]
    for one in plan.get("patches", []):
        target = one["target"]
        found = [it for it in made if (it["kind"], it["metadata"]["name"]) == (target["kind"], target["name"])]
        assert len(found) == 1, f"{folder}: a patch of {target}, of which there are {len(found)}"
        for step in YAML(typ="safe").load(one["patch"]):
            _replace(found[0], step)
    for one in plan.get("images", []):
        used = [it for pod in map(pod_of, made) if pod for it in pod["containers"] if it["image"] == one["name"]]
        assert used, f"{folder}: nobody runs {one['name']}"
        for container in used:
            container["image"] = f"{one['newName']}:{one['newTag']}"
    for one in made:
        if one["kind"] not in CLUSTER_WIDE:
            one["metadata"]["namespace"] = plan["namespace"]
    names = [(one["kind"], one["metadata"]["name"]) for one in made]
    assert len(names) == len(set(names)), f"{folder}: two of a name: {names}"
    return made


def pod_of(manifest: Manifest) -> Manifest | None:
    """What a manifest's pods are like; None for one that makes none."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    template = spec.get("template") if manifest["kind"] in ("CronJob", "Deployment", "Job") else None
    pod: Manifest | None = template and template["spec"]
    return pod


def _config_map(folder: Path, plan: Manifest) -> Manifest:
    data = dict(one.split("=", 1) for one in plan.get("literals", []))
    data |= {name: (folder / name).read_text() for name in plan.get("files", [])}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": plan["name"]}, "data": data}


def _replace(manifest: Manifest, step: Manifest) -> None:
    assert step["op"] == "replace", step
    *parents, last = step["path"].removeprefix("/").split("/")
    place: Any = manifest
    for name in parents:
        place = place[int(name) if isinstance(place, list) else name]
    assert last in place, f"{step['path']}: there is nothing to replace"
    place[last] = copy.deepcopy(step["value"])
