# SPDX-License-Identifier: Apache-2.0
"""Property-based tests with specs that are generated from the schema of the API. Reverting an edit restores the
previous state; an edited model equals a new one; the API server rejects what the schema forbids, and other invalid
specs become a condition. PM_SCHEMA_EXAMPLES=1000 runs more, PM_SCHEMA_SEED sets the seed."""

import collections
import json
import os
import re
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest
import yaml
from apiserver import GROUPS, ROOT, Api, ApiError
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from machine import CHILDREN, label
from schema import Generator, put, violations
from world import World, differences

EXAMPLES = int(os.environ.get("PM_SCHEMA_EXAMPLES", 16))
SEED = int(os.environ.get("PM_SCHEMA_SEED", 20))
CONCURRENT_MODELS = int(os.environ.get("PM_SCHEMA_BESIDE", 8))  # concurrent models: most of their time is spent waiting
IDLE_SECONDS = 1.0  # seconds without a request at the end of each example
MAX_WRITES = 100  # of one model between two idle states: three replicas of four pods are created and as many deleted
SPEC = yaml.safe_load((ROOT / "crds" / "parallelmodel.yaml").read_text())["spec"]["versions"][0]["schema"][
    "openAPIV3Schema"
]["properties"]["spec"]
SMALLEST = {"model": {"source": "pvc://models/stories"}, "devices": {"count": 1, "type": "CPU"}}
COMMON = settings(
    database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], print_blob=False
)

BYTES = st.sampled_from(["1Gi", "2Gi", "4e9", 2**31, "1500000k"])
patience = st.integers(600, 3600)  # of what the operator waits for: the machine below takes some milliseconds, not 0
KNOWN = {  # path -> (tame, other) where the schema alone leads nowhere; None: as the schema says
    ".model.source": (
        st.sampled_from(["pvc://models/stories", "pvc://models", "pvc://others/a/b/"]),
        st.from_regex(r"pvc://[a-z0-9]([-a-z0-9.]{0,9}[a-z0-9])?(/[^/\n]{1,9}){0,3}/?", fullmatch=True),
    ),
    ".model.draft": (st.sampled_from([{"source": "pvc://models/small"}, {"source": "pvc://others"}]), None),
    ".model.policyRef": (st.sampled_from([{"name": "policy"}, {"name": "policy", "key": "mine.yaml"}]), None),
    ".devices.type": (st.just("CPU"), st.sampled_from(["CPU", "GPU"])),
    ".devices.count": (st.sampled_from([1, 2, 3, 4, 6, 8]), None),
    ".devices.memory": (BYTES, None),
    ".resources.memory": (BYTES, None),
    ".shmSize": (BYTES, None),
    ".resources.cpu": (st.sampled_from(["3", "1500m", 2, "0.5"]), None),
    ".devices.resource": (st.just("example.com/device"), None),
    ".devices.claim.selectors": (st.just(["device.driver == 'gpu.example.com'"]), None),
    ".devices.claim.matchAttribute": (st.just("resource.kubernetes.io/pcieRoot"), None),
    ".parallelism.sizes.tensor": (st.integers(1, 4), None),
    ".parallelism.sizes.pipeline": (st.integers(1, 4), None),
    ".parallelism.sizes.data": (st.integers(1, 4), None),
    ".replicas": (st.integers(0, 3), st.integers(0, 3)),  # 64 replicas test nothing more and are slow
    ".scheduling.nodeSelector": (st.sampled_from([{}, {"zone": "a"}]), None),
    ".scheduling.tolerations": (
        st.sampled_from([[{"operator": "Exists"}], [{"key": "a", "value": "b", "effect": "NoSchedule"}]]),
        None,
    ),
    ".scheduling.nodeAffinity": (
        st.just(
            {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        ),
        None,
    ),
    ".scheduling.priorityClassName": (st.just("high"), None),
    ".scheduling.runtimeClassName": (st.just("nvidia"), None),
    ".scheduling.scheduleTimeoutSeconds": (patience, patience),
    ".failure.startSeconds": (patience, patience),
    ".worker.extraResources": (st.sampled_from([{"example.com/hca": 1}, {"example.com/hca": "2"}]), None),
}


def manifest(name: str, ns: str, spec: dict) -> dict:
    return {
        "apiVersion": "parallelmodel.dev/v1alpha1",
        "kind": "ParallelModel",
        "metadata": {"name": name, "namespace": ns},
        "spec": spec,
    }


class Campaign:
    """One controller and one namespace; each model has its own name."""

    def __init__(self, world: World) -> None:
        self.world, self.ns, self.plane = world, world.ns, world.plane
        self.counts, self.reasons = collections.Counter(), collections.Counter()
        self.last, self.writes, self.reads, self._lock, self._number = (
            {},
            collections.Counter(),
            collections.Counter(),
            threading.Lock(),
            0,
        )
        self.written = collections.defaultdict(list)  # writes of each model, in order
        world.proxy.fault = self._note
        self.generator = Generator(SPEC, KNOWN, {".devices.type"}, self.accepts)
        api = self.api = Api(self.plane)
        api.create("configmaps", self.ns, {"metadata": {"name": "policy"}, "data": {"mine.yaml": "model_type: mine\n"}})
        for claim in ("models", "others"):
            api.create(
                "persistentvolumeclaims",
                self.ns,
                {
                    "metadata": {"name": claim},
                    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
                },
            )
        api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 10})
        api.request(
            "POST", "/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        )
        # The admission plugin learns of classes by its own watch: an earlier pod would be rejected, and is retried only
        # after 30 s.
        api.wait_until(self._knows_classes, 30, "that the API server knows its classes")
        api.request(
            "PATCH", "/api/v1/nodes/node-a", {"metadata": {"labels": {"zone": "a"}}}, "application/merge-patch+json"
        )

    def _knows_classes(self) -> bool:
        spec = {"priorityClassName": "high", "runtimeClassName": "nvidia", "containers": [{"name": "c", "image": "i"}]}
        try:
            self.api.request(
                "POST",
                f"/api/v1/namespaces/{self.ns}/pods?dryRun=All",
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dry"}, "spec": spec},
            )
            return True
        except ApiError as error:
            assert error.code == 403, error
            self.counts["refused for want of a class"] += 1
            return False

    def _note(self, call):
        owner = call.name.split("-")[0]
        with self._lock:
            (self.writes if call.mutates else self.reads)[owner] += 1
            if call.mutates:
                self.last[owner] = call.time
                self.written[owner].append(str(call))

    def name(self) -> str:
        with self._lock:
            self._number += 1
            return f"s{self._number:06d}"

    def accepts(self, spec: dict) -> bool:
        """Returns whether the API server accepts this spec with the required fields added."""
        path = f"{GROUPS['parallelmodels']}/namespaces/{self.ns}/parallelmodels?dryRun=All"
        try:
            self.api.request("POST", path, manifest("dry", self.ns, {**SMALLEST, **spec}))
            return True
        except ApiError as error:
            assert error.code in (400, 422), error
            self.counts["refused while drawing"] += 1
            return False

    def rest(self, api: Api, name: str) -> dict:
        """Returns the model once its status reflects the current spec and nothing was written for IDLE_SECONDS."""
        begin, before, moved = time.monotonic(), self.writes[name], 0.0
        while True:
            model = api.get("parallelmodels", self.ns, name)
            status = model.get("status", {})
            conditions = {c["type"]: c for c in status.get("conditions", [])}
            done = conditions.get("Reconciling", {}).get("status") == "False"
            silence = time.monotonic() - max(self.last.get(name, 0), begin, moved)
            if status.get("observedGeneration") == model["metadata"]["generation"] and silence > (1 if done else 5):
                if not any(
                    "deletionTimestamp" in pod["metadata"] or not pod["status"].get("containerStatuses")
                    for pod in self.children(api, "pods", name)
                ):
                    break
                moved = time.monotonic()  # the simulated kubelets still change pods, and the operator may react
            assert self.world.program.poll() is None, f"the controller has ended: {self.world.log()[-3000:]}"
            assert self.writes[name] - before < MAX_WRITES, (
                f"{name} does not come to rest: {self.writes[name] - before} writes"
            )
            assert time.monotonic() - begin < 60, (
                f"{name} does not come to rest: {json.dumps(status.get('conditions'))}"
            )
            time.sleep(0.05)
        for condition in conditions.values():
            assert re.fullmatch("[A-Z][A-Za-z]+", condition["reason"]) and condition["reason"] != "Unknown", condition
            says_what = condition["message"] or (
                condition["type"] in ("Reconciling", "Stalled") and condition["status"] == "False"
            )
            assert says_what and condition["observedGeneration"] == model["metadata"]["generation"], condition
        return model

    def children(self, api: Api, plural: str, name: str) -> list[dict]:
        return api.request("GET", api.path(plural, self.ns) + f"?labelSelector=parallelmodel.dev/name={name}")["items"]

    def digest(self, api: Api, name: str, model: dict) -> dict:
        """Returns children and status without times and generations."""
        out = {}
        for plural in CHILDREN:
            for item in self.children(api, plural, name):
                meta, spec = item["metadata"], item.get("spec", {})
                for key in ("clusterIP", "clusterIPs", "nodeName", "healthCheckNodePort"):
                    spec.pop(key, None)  # assigned by the cluster, as the ports below
                for port in spec.get("ports", []):
                    port.pop("nodePort", None)
                if generation := label(item, "replica-generation"):
                    meta["labels"].pop("parallelmodel.dev/replica-generation")
                    if group := meta["labels"].pop("kueue.x-k8s.io/pod-group-name", ""):
                        assert group.endswith(f"-{generation}")
                    for kind in ("podAffinity", "podAntiAffinity"):
                        terms = spec.get("affinity", {}).get(kind, {})
                        for wish in terms.get("preferredDuringSchedulingIgnoredDuringExecution", []):
                            selected = wish["podAffinityTerm"]["labelSelector"]["matchLabels"]
                            assert selected.pop("parallelmodel.dev/replica-generation") == generation
                    arguments = spec["containers"][0]["args"]
                    arguments[arguments.index("--replica-generation") + 1] = ""
                    meta["name"] = meta["name"].removesuffix(generation)
                meta.get("annotations", {}).pop("parallelmodel.dev/generation", None)
                out[f"{plural}/{meta['name']}"] = {
                    "spec": spec,
                    "data": item.get("data"),
                    "labels": meta.get("labels"),
                    "annotations": meta.get("annotations") or {},
                }
        status = json.loads(json.dumps(model["status"]))
        for entry in [status, *status["conditions"], *status["replicaStatuses"]]:
            for key in (
                "lastTransitionTime",
                "observedGeneration",
                "restartTimes",
                "loadSeconds",
                "startupSeconds",
                "startup",
                "fetchSeconds",
                "replicaGeneration",
                "abandonedGeneration",
            ):
                entry.pop(key, None)
        return json.loads(
            re.sub(
                rf"\b{name}-(\d+)-(\d+)-\d+\b",
                r"\1-\2",
                json.dumps({"children": out, "status": status}, sort_keys=True),
            )
        )

    def serves(self, model: dict) -> bool:
        conditions = {c["type"]: c for c in model["status"]["conditions"]}
        for kind in ("Planned", "Scheduled", "Ready"):
            if conditions[kind]["status"] != "True":
                self.reasons[f"{kind}: {conditions[kind]['reason']}"] += 1
                break
        return (
            conditions["Planned"]["status"] == "True"
            and (conditions["Ready"]["status"] == "True" or conditions["Ready"]["reason"] == "ScaledToZero")
            and conditions["Reconciling"]["status"] == "False"
        )

    def try_pair(self, a: dict, b: dict) -> None:
        api, name = Api(self.plane), self.name()
        try:
            self._try(api, name, a, b)
        except AssertionError as error:
            raise AssertionError(f"{error}\n  A = {json.dumps(a)}\n  B = {json.dumps(b)}") from None
        finally:
            api.delete("parallelmodels", self.ns, name)

    def _make(self, api: Api, name: str, spec: dict) -> None:
        api.create("parallelmodels", self.ns, manifest(name, self.ns, {**SMALLEST, **spec}))

    def _look(self, api: Api, name: str) -> tuple[dict, bool]:
        model = self.rest(api, name)
        return self.digest(api, name, model), self.serves(model)

    def _try(self, api: Api, name: str, a: dict, b: dict) -> None:
        def change(spec: dict) -> tuple[dict, bool]:
            api.request(
                "PATCH",
                api.path("parallelmodels", self.ns, name),
                [{"op": "replace", "path": "/spec", "value": {**SMALLEST, **spec}}],
                "application/json-patch+json",
            )
            return self._look(api, name)

        self._make(api, name, a)
        first, good = self._look(api, name)
        second, _ = change(b)
        third, _ = change(a)
        api.delete("parallelmodels", self.ns, name)
        api.wait_until(
            lambda: not any(self.children(api, plural, name) for plural in CHILDREN),
            30,
            f"the end of all children of {name}",
        )
        self._make(api, name, b)
        model = self.rest(api, name)
        new, new_good = self.digest(api, name, model), self.serves(model)
        self.counts["pairs"] += 1
        if good:  # a spec that cannot serve intentionally leaves the replicas of the last good spec
            self.counts["A -> B -> A"] += 1
            assert not differences(third, first), f"A -> B -> A is not A: {differences(third, first)}"
        if new_good:
            self.counts["A -> B and B"] += 1
            assert not differences(second, new), f"A -> B is not B: {differences(second, new)}"
        writes, reads = self.writes[name], self.reads[name]
        time.sleep(IDLE_SECONDS)
        assert self.writes[name] == writes, (
            f"it writes when idle: {self.written[name][writes:]}, "
            f"after {self.written[name][max(0, writes - 20) : writes]}; "
            f"status before: {json.dumps(model['status']['conditions'])}"
        )
        assert self.reads[name] - reads <= 2, "it reads repeatedly when idle"


@pytest.fixture(scope="module")
def campaign(plane, machine, tmp_path_factory):
    world = World(plane, "schema", tmp_path_factory.mktemp("schema"))
    yield Campaign(world)
    world.close()
    assert not machine.violations, machine.violations[:3]


def test_reverting_an_edit_restores_the_state_and_an_edited_model_equals_a_new_one(campaign):
    begin, seen, under_way, failures = time.monotonic(), set(), set(), []

    def collect(until: int) -> None:
        """Waits until at most `until` pairs are in progress."""
        while len(under_way) > until:
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            under_way.difference_update(done)
            failures.extend(error for one in done if (error := one.exception()))

    with ThreadPoolExecutor(CONCURRENT_MODELS) as pool:

        @seed(SEED)
        @settings(COMMON, max_examples=EXAMPLES)
        @given(st.data())
        def one(data):
            a = data.draw(campaign.generator.spec())
            b = data.draw(st.one_of(campaign.generator.edited(a), campaign.generator.spec()))
            pair = json.dumps([a, b])
            if failures or pair in seen or not (campaign.accepts(a) and campaign.accepts(b)):
                return
            seen.add(pair)
            under_way.add(pool.submit(campaign.try_pair, a, b))
            collect(CONCURRENT_MODELS - 1)

        one()
        collect(0)
    assert not failures, f"after {campaign.counts['pairs']} pairs:\n" + "\n".join(map(str, failures))
    print(
        f"\nseed {SEED}, {time.monotonic() - begin:.0f} s: {dict(campaign.counts)}; "
        f"{sum(campaign.writes.values())} writes; not serving: {dict(campaign.reasons)}"
    )
    assert campaign.world.lives == 1 and campaign.world.program.poll() is None
    assert (
        campaign.counts["A -> B -> A"] > campaign.counts["pairs"] / 4
        and campaign.counts["A -> B and B"] > campaign.counts["pairs"] / 4
    ), "too few specs can serve to show anything"
    campaign.api.wait_until(
        lambda: (
            not any(label(child, "name") for plural in CHILDREN for child in campaign.api.list(plural, campaign.ns))
        ),
        30,
        "the end of all children",
    )


def test_the_api_server_rejects_what_the_schema_forbids_and_names_the_field(campaign):
    counts = collections.Counter()

    @seed(SEED)
    @settings(COMMON, max_examples=EXAMPLES * 8)
    @given(st.data())
    def one(data):
        spec = {**SMALLEST, **data.draw(campaign.generator.spec())}
        path, bad = data.draw(st.sampled_from(violations(SPEC, spec)))
        try:
            campaign.api.request(
                "POST",
                campaign.api.path("parallelmodels", campaign.ns) + "?dryRun=All",
                manifest("bad", campaign.ns, put(spec, path, bad)),
            )
        except ApiError as error:
            assert error.code in (400, 422), error
            field = [word for word in path.split("/") if word and not word.isdigit()]
            assert not field or field[0] in str(error), f"{path} = {bad!r}: {error}"
            counts[error.code] += 1
            return
        raise AssertionError(f"{path} = {bad!r} was accepted")

    one()
    print(f"\nseed {SEED}: refused {dict(counts)}")
