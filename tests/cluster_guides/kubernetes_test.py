"""The guide for Kubernetes, without a Kubernetes: make clusters.

The manifests are checked against Kubernetes's schemas, and the container's command runs in network
namespaces with the pods' names.
"""

import os
import pathlib
import subprocess
import sys

import yaml
from absl.testing import absltest
from machines import Machines

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_EXAMPLES = _ROOT / "examples/clusters"


def _documents(name):
    return list(yaml.safe_load_all((_EXAMPLES / name).read_text()))


class KubernetesTest(absltest.TestCase):
    def test_objects_are_as_the_schemas_of_kubernetes_have_them(self):
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("pip install kubernetes-validate")
        version = kubernetes_validate.latest_version()
        # The operator's own kind has no schema there, but what it makes pods of does.
        template = _documents("tfjob.yaml")[0]["spec"]["tfReplicaSpecs"]["Worker"]["template"]
        for document in [
            *_documents("statefulset.yaml"),
            {"apiVersion": "v1", "kind": "Pod", **template},
        ]:
            kubernetes_validate.validate(document, version, strict=True)

    def test_names_and_ports_of_the_objects_belong_together(self):
        service, stateful_set, policy = _documents("statefulset.yaml")
        template = stateful_set["spec"]["template"]
        [container] = template["spec"]["containers"]
        environment = {variable["name"]: variable["value"] for variable in container["env"]}
        labels = template["metadata"]["labels"]
        self.assertEqual(stateful_set["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(service["spec"]["selector"], labels)
        self.assertEqual(policy["spec"]["podSelector"]["matchLabels"], labels)
        self.assertEqual(service["metadata"]["name"], stateful_set["spec"]["serviceName"])
        self.assertEqual(environment["SERVICE"], service["metadata"]["name"])
        self.assertEqual(int(environment["REPLICAS"]), stateful_set["spec"]["replicas"])
        [rule] = policy["spec"]["ingress"]
        ports = {
            int(environment["PORT"]),
            *(port["port"] for port in service["spec"]["ports"] + rule["ports"]),
            *(port["containerPort"] for port in container["ports"]),
        }
        self.assertLen(ports, 1)

    def test_pods_that_run_the_container_s_command_train_compressed(self):
        stateful_set = _documents("statefulset.yaml")[1]
        name, spec = stateful_set["metadata"]["name"], stateful_set["spec"]
        [container] = spec["template"]["spec"]["containers"]
        pods = [f"{name}-{i}.{spec['serviceName']}" for i in range(spec["replicas"])]
        machines = self.enterContext(Machines(pods))
        command = [
            sys.executable if word == "python" else word
            for word in container["command"] + container["args"]
        ]
        processes = [
            self.enterContext(
                subprocess.Popen(
                    machines.command(pod, *command),
                    cwd=_ROOT,
                    env={
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                        **{variable["name"]: variable["value"] for variable in container["env"]},
                    },
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for pod in range(spec["replicas"])
        ]
        for pod, process in enumerate(processes):
            output = process.communicate()[0]
            print(output, end="")
            self.assertRegex(output, rf"worker {pod} of 2: accuracy 0\.9\d+, 140 steps")
            self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    absltest.main()
