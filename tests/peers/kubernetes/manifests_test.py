#!/usr/bin/env python3
"""The manifests of examples/kubernetes: valid for three releases of Kubernetes and for JobSet, and consistent."""
import copy
import os
import sys
import unittest
from pathlib import Path

PEERS_PYTHON = os.environ.get("TROUPE_PEERS_PYTHON", "")
if PEERS_PYTHON and sys.executable != PEERS_PYTHON:
    os.execv(PEERS_PYTHON, [PEERS_PYTHON, *sys.argv])

try:
    import kubernetes_validate
    import yaml
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
except ImportError as error:
    print(f"SKIPPED: the Python of the peers lacks {error.name}")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

FOLDER = Path(__file__).resolve().parents[3] / "examples/kubernetes"
RELEASES = ("1.35", "1.36", "1.37")


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def jobs_of_set(jobset):
    """The jobs that JobSet makes of its templates."""
    set_name = jobset["metadata"]["name"]
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{set_name}-{job['name']}-0"}, **job["template"]}
            for job in jobset["spec"]["replicatedJobs"]]


def lost_fields(given, known, path=""):
    """The paths of what *given* has and *known* does not."""
    if isinstance(given, dict) and isinstance(known, dict):
        return [x for key, value in given.items() for x in lost_fields(value, known.get(key), f"{path}.{key}")]
    if isinstance(given, list) and isinstance(known, list) and len(given) == len(known):
        return [x for i, value in enumerate(given) for x in lost_fields(value, known[i], f"{path}[{i}]")]
    return [] if given == known else [path]


def unknown_fields(jobset):
    """The fields of a JobSet, outside the templates of its jobs, that its API does not have. A type that is not right raises."""
    own = copy.deepcopy(jobset)
    for job in own["spec"]["replicatedJobs"]:
        job["template"] = {}
    return lost_fields(own, JobsetV1alpha2JobSet.from_dict(own).to_dict())


def pod_of(job):
    return job["spec"]["template"]["spec"]


def container_of(job):
    (container,) = pod_of(job)["containers"]
    return container


def variables_of(job):
    return {x["name"]: x["value"] for x in container_of(job)["env"]}


class ManifestsTest(unittest.TestCase):
    def setUp(self):
        self.service, self.job, self.policy = documents("indexed_job.yaml")
        self.jobset, self.policy_of_set = documents("jobset.yaml")
        self.jobs = [self.job, *jobs_of_set(self.jobset)]

    def test_they_are_valid(self):
        for release in RELEASES:
            for x in (self.service, self.policy, self.policy_of_set, *self.jobs):
                with self.subTest(release=release, name=x["metadata"]["name"]):
                    kubernetes_validate.validate(x, release, strict=True)

    def test_a_misspelt_field_is_found(self):
        self.job["spec"]["backoffLimitPerIndx"] = 3
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(self.job, RELEASES[-1], strict=True)

    def test_the_set_has_only_fields_of_jobset(self):
        self.assertEqual(self.jobset["apiVersion"], "jobset.x-k8s.io/v1alpha2")
        self.assertEqual(unknown_fields(self.jobset), [])

    def test_a_misspelt_field_of_the_set_is_found(self):
        spec = self.jobset["spec"]
        spec["failurePolicy"]["maxRestart"] = spec["failurePolicy"].pop("maxRestarts")
        spec["replicatedJobs"][1]["replica"] = 1
        self.jobset["sepc"] = {}
        self.assertEqual(unknown_fields(self.jobset), [".spec.failurePolicy.maxRestart", ".spec.replicatedJobs[1].replica", ".sepc"])
        spec["failurePolicy"]["maxRestarts"] = "three"
        with self.assertRaises(ValueError):
            unknown_fields(self.jobset)

    def test_the_driver_is_the_first_pod(self):
        name = self.job["metadata"]["name"]
        self.assertEqual([self.service["metadata"]["name"], pod_of(self.job)["subdomain"]], [name, name])
        self.assertEqual(self.service["spec"]["selector"], {"job-name": name})
        host, port = variables_of(self.job)["TROUPE_DRIVER"].split(":")
        self.assertEqual(host, f"{name}-0.{name}")
        self.assertEqual(int(port), self.service["spec"]["ports"][0]["port"])

        driver, agents = jobs_of_set(self.jobset)
        subdomain = self.jobset["spec"]["network"]["subdomain"]
        for job in (driver, agents):
            self.assertEqual(variables_of(job)["TROUPE_DRIVER"], f"{driver['metadata']['name']}-0.{subdomain}:4444")
        self.assertEqual(driver["spec"]["completions"], 1)
        for job, expected in ((self.job, self.job["spec"]["completions"] - 1), (driver, agents["spec"]["completions"])):
            self.assertEqual(int(variables_of(job)["TROUPE_AGENTS"]), expected)

    def test_pods_are_on_hosts_of_their_own_and_closed_to_others(self):
        # Labels that the Job controller, and that of JobSet, give to their pods.
        of_set = {"jobset.sigs.k8s.io/jobset-name": self.jobset["metadata"]["name"]}
        for job, policy, labels in ((self.job, self.policy, {"job-name": self.job["metadata"]["name"]}),
                                    *((job, self.policy_of_set, of_set) for job in jobs_of_set(self.jobset))):
            all_pods = {"matchLabels": labels}
            (term,) = pod_of(job)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            self.assertEqual(term, {"topologyKey": "kubernetes.io/hostname", "labelSelector": all_pods})
            self.assertEqual(policy["spec"], {"podSelector": all_pods, "policyTypes": ["Ingress"],
                                              "ingress": [{"from": [{"podSelector": all_pods}]}]})

    def test_each_pod_has_the_ticket_and_the_storage(self):
        for job in self.jobs:
            volumes = {x["name"]: x for x in pod_of(job)["volumes"]}
            mounts = {x["name"]: x["mountPath"] for x in container_of(job)["volumeMounts"]}
            self.assertEqual(set(volumes), set(mounts))
            self.assertEqual(volumes["ticket"]["secret"]["defaultMode"], 0o400)
            self.assertEqual(variables_of(job)["TROUPE_TICKET"], mounts["ticket"])
            port = int(variables_of(job)["TROUPE_DRIVER"].split(":")[1])
            self.assertEqual([x["containerPort"] for x in container_of(job)["ports"]], [port])

    def test_each_pod_knows_how_long_it_has_to_leave(self):
        for job in self.jobs:
            self.assertEqual(int(variables_of(job)["TROUPE_SENDER_GRACE"]), pod_of(job)["terminationGracePeriodSeconds"])

    def test_the_set_does_not_start_again_what_would_fail_alike(self):
        (rule,) = self.jobset["spec"]["failurePolicy"]["rules"]
        self.assertEqual((rule["action"], rule["onJobFailureReasons"]), ("FailJobSet", ["PodFailurePolicy"]))

    def test_the_end_of_the_driver_is_that_of_the_job(self):
        # The agent of a pod that was replaced may come too late to learn of it.
        self.assertEqual(self.job["spec"]["completionMode"], "Indexed")
        self.assertEqual(self.job["spec"]["successPolicy"], {"rules": [{"succeededIndexes": "0"}]})
        self.assertEqual(self.jobset["spec"]["successPolicy"], {"operator": "All", "targetReplicatedJobs": ["driver"]})

    def test_the_exit_codes_of_agents_are_answered(self):
        for job in self.jobs:
            self.assertEqual(pod_of(job)["restartPolicy"], "Never")  # podFailurePolicy demands it.
            self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])
            actions = {code: rule["action"] for rule in job["spec"]["podFailurePolicy"]["rules"]
                       for code in rule.get("onExitCodes", {}).get("values", [])}
            self.assertEqual(actions, {75: "Ignore", 78: "FailJob"})
            for rule in job["spec"]["podFailurePolicy"]["rules"]:
                if "onExitCodes" in rule:
                    self.assertEqual(rule["onExitCodes"]["containerName"], container_of(job)["name"])


if __name__ == "__main__":
    unittest.main()
