"""Rendezvous servers that store the job in an etcd with users, or with TLS.

Usage: etcd_access_test.py /path/to/horovod-rendezvous
"""

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import etcd_loss_test
from etcd_loss_test import EtcdLossTest

sys.path.append(os.path.join(os.path.dirname(__file__), "../hosts"))
import certificates

PASSWORD = 'opensesame:%"ä'
PREFIX = "/jobs/"


def b64(text):
    return base64.b64encode(text.encode()).decode()


class EtcdAccessTest(EtcdLossTest):
    def context(self):
        return None

    def ask_etcd(self, path, *, token=None, **body):
        """Sends a request to etcd itself, and repeats it until etcd answers."""
        deadline = time.monotonic() + 200
        request = urllib.request.Request(
            f"{self.scheme}://127.0.0.1:{self.etcd_port}/v3/{path}",
            json.dumps(body).encode(),
            {"Authorization": token} if token else {},
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=200, context=self.context()) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def file(self, name, text, mode=0o600):
        path = os.path.join(self.folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
            file.write(text)
        return path

    def serve(self, *flags, address="etcd", host="127.0.0.1"):
        self.start(
            "server",
            [
                etcd_loss_test.SERVER,
                "--listen",
                f"127.0.0.1:{self.port}",
                "--token-file",
                self.token,
                "--backend",
                f"{address}://{host}:{self.etcd_port}{PREFIX}",
                *flags,
            ],
        )

    def refused(self, *flags, address="etcd"):
        """Returns the single message of a server that does not start."""
        ended = subprocess.run(
            [
                etcd_loss_test.SERVER,
                "--listen",
                "127.0.0.1:0",
                "--token-file",
                self.token,
                "--backend",
                f"{address}://127.0.0.1:{self.etcd_port}{PREFIX}",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
        )
        self.assertIn(ended.returncode, (1, 2), ended.stdout)
        # On a busy machine, the server also reports attempts that take some seconds.
        said = [line for line in ended.stdout.splitlines() if "it is tried for" not in line]
        self.assertEqual(len(said), 1, ended.stdout)
        self.assertNotIn(PASSWORD, ended.stdout)
        return ended.stdout

    def await_words(self, words):
        """Waits until the log of the server has these words."""
        deadline = time.monotonic() + 200
        while words not in self.log("server"):
            self.assertLess(time.monotonic(), deadline, self.log("server"))
            time.sleep(0.05)

    def tells(self, words, *flags, address="etcd"):
        """Waits until the log of a server that retries contains these words."""
        self.serve(*flags, address=address)
        self.await_words(words)
        self.kill("server")

    def keeps_a_job(self, *flags, address="etcd"):
        """Checks that the job survives the loss of a server, and of etcd together with its authentication tokens."""
        self.serve(*flags, address=address)
        client = self.client("a")
        self.assertEqual(client.call("PUT", "/v1/keys/k", b"1")[0], 200)
        self.kill("server")
        self.serve(*flags, address=address)
        self.assertEqual(client.ask("GET", "/v1/keys/k"), (200, b"1"))
        self.kill("etcd")
        self.start_etcd()
        self.assertEqual(client.call("PUT", "/v1/keys/k", b"2")[0], 200)
        self.assertEqual(client.ask("GET", "/v1/keys/k"), (200, b"2"))
        with open(f"/proc/{self.processes['server'].pid}/cmdline") as file:
            self.assertNotIn(PASSWORD, file.read())
        self.assertEqual(self.kill("server", signal.SIGINT), 0)
        self.assertNotIn(PASSWORD, self.log("server"))


class UsersTest(EtcdAccessTest):
    tokens = []  # etcd's flags for tokens other than its simple tokens

    def setUp(self):
        super().setUp()
        self.users = self.file("user", f"job:{PASSWORD}\n")

    def etcd_flags(self):
        return self.tokens

    def issue_jwt(self, ttl):
        """Restarts etcd with tokens that contain the revision of the users, and expire after `ttl`."""
        key = os.path.join(self.folder, "jwt")
        subprocess.run(["openssl", "genrsa", "-out", f"{key}.key", "2048"], check=True, capture_output=True)
        subprocess.run(
            ["openssl", "rsa", "-in", f"{key}.key", "-pubout", "-out", f"{key}.pub"], check=True, capture_output=True
        )
        self.tokens = ["--auth-token", f"jwt,pub-key={key}.pub,priv-key={key}.key,sign-method=RS256,ttl={ttl}"]
        self.kill("etcd")
        self.start_etcd()

    def as_root(self, path, **body):
        token = self.ask_etcd("auth/authenticate", name="root", password="root")["token"]
        self.ask_etcd(path, token=token, **body)

    def add_users(self):
        for user, password, role in (("root", "root", "root"), ("job", PASSWORD, "jobs")):
            self.ask_etcd("auth/user/add", name=user, password=password)
            self.ask_etcd("auth/role/add", name=role)
            self.ask_etcd("auth/user/grant", user=user, role=role)
        self.ask_etcd(
            "auth/role/grant",
            name="jobs",
            perm={"permType": "READWRITE", "key": b64(PREFIX), "range_end": b64(PREFIX[:-1] + "0")},
        )
        self.ask_etcd("auth/enable")

    def test_a_job_of_a_user(self):
        self.ask_etcd("kv/range", key=b64("x"))
        self.assertIn("leave out --etcd-user-file", self.refused("--etcd-user-file", self.users))
        self.add_users()
        self.keeps_a_job("--etcd-user-file", self.users)
        self.assertIn("name a file with USER:PASSWORD by --etcd-user-file", self.refused())
        wrong = self.file("wrong", "job:guess\n")
        self.assertIn(
            "invalid user ID or password; check the user and the password in --etcd-user-file",
            self.refused("--etcd-user-file", wrong),
        )

    def test_a_token_of_an_earlier_revision_and_one_that_expired(self):
        self.issue_jwt("2s")
        self.add_users()
        self.serve("--etcd-user-file", self.users)
        client = self.client("a")
        self.assertEqual(client.call("PUT", "/v1/keys/k", b"0")[0], 200)
        for change in (lambda: self.as_root("auth/role/add", name="role"), lambda: time.sleep(2.5)):
            change()
            self.assertEqual(client.call("PUT", "/v1/keys/k", b"1")[0], 200)
        self.assertEqual(self.kill("server", signal.SIGINT), 0, self.log("server"))
        self.assertNotIn("refused", self.log("server"))

    def waits_while(self, client, words, take, give):
        """Runs a server in mid-job; `take` removes its permission and `give` restores it."""
        take()
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(client.call("PUT", "/v1/keys/k", b"1")[0]))
        waiting.start()
        self.await_words(words + "; requests wait until etcd accepts them from user 'job'")
        self.assertEqual(answers, [])
        give()
        waiting.join(60)
        self.assertEqual(answers, [200], self.log("server"))

    def test_a_user_that_loses_its_role_or_password_in_mid_job(self):
        self.ask_etcd("kv/range", key=b64("x"))
        self.add_users()
        self.serve("--etcd-user-file", self.users)
        client = self.client("a")
        self.assertEqual(client.call("PUT", "/v1/keys/k", b"0")[0], 200)
        role = {"name": "job", "role": "jobs"}
        self.waits_while(
            client,
            "permission denied",
            lambda: self.as_root("auth/user/revoke", **role),
            lambda: self.as_root("auth/user/grant", user="job", role="jobs"),
        )
        self.waits_while(
            client,
            "check the user and the password in --etcd-user-file",
            lambda: self.as_root("auth/user/changepw", name="job", password="other"),
            lambda: self.as_root("auth/user/changepw", name="job", password=PASSWORD),
        )
        self.assertEqual(client.ask("GET", "/v1/keys/k"), (200, b"1"))
        self.as_root("auth/user/revoke", **role)
        self.assertIn("permission denied", self.refused("--etcd-user-file", self.users))
        self.as_root("auth/user/grant", user="job", role="jobs")
        self.assertEqual(self.kill("server", signal.SIGINT), 0, self.log("server"))

    def test_users_that_appear_in_mid_job(self):
        self.ask_etcd("kv/range", key=b64("x"))
        self.serve()
        client = self.client("a")
        self.assertEqual(client.call("PUT", "/v1/keys/k", b"0")[0], 200)
        self.add_users()
        waiting = threading.Thread(target=lambda: client.call("PUT", "/v1/keys/k", b"1"))
        waiting.start()
        self.await_words(
            "name a file with USER:PASSWORD by --etcd-user-file; requests wait until etcd "
            "accepts them from a client without a user"
        )
        self.as_root("auth/disable")
        waiting.join(60)
        self.assertEqual(client.ask("GET", "/v1/keys/k"), (200, b"1"))

    def test_a_password_that_travels_unencrypted(self):
        self.ask_etcd("kv/range", key=b64("x"))
        self.add_users()
        flags = ("--etcd-user-file", self.users)
        # The address 0.0.0.0 reaches this host, but is not a loopback address.
        self.serve(*flags, host="0.0.0.0")
        self.await_words(
            f"the password in {self.users} goes unencrypted to etcd at "
            f"0.0.0.0:{self.etcd_port}; set up TLS in etcd, and write --backend "
            f"etcds://0.0.0.0:{self.etcd_port}"
        )
        self.assertEqual(self.client("a").call("PUT", "/v1/keys/k", b"1")[0], 200)
        self.assertEqual(self.kill("server", signal.SIGINT), 0)
        self.assertEqual(self.log("server").count("unencrypted"), 1)
        self.serve(*flags)
        self.assertEqual(self.client("b").call("PUT", "/v1/keys/k", b"1")[0], 200)
        self.assertEqual(self.log("server").count("unencrypted"), 1)

    def test_files_that_hold_no_user(self):
        for text, mode, words in (
            ("job", 0o600, "USER:PASSWORD"),
            ("a:b\nc", 0o600, "USER:PASSWORD"),
            (f"job:{PASSWORD}", 0o644, "chmod 600"),
        ):
            path = self.file("bad", text, mode)
            os.chmod(path, mode)
            said = self.refused("--etcd-user-file", path)
            self.assertIn("--etcd-user-file: ", said)
            self.assertIn(words, said)
        self.assertIn("--etcd-user-file", self.refused(address=f"etcd://job:{PASSWORD}@h,etcd"))


class TlsTest(EtcdAccessTest):
    scheme = "https"

    def setUp(self):
        self.certificates = None
        super().setUp()

    def certify(self, name, authority=None):
        """Makes name.pem and name.key in the job's folder, signed by an authority or self-signed."""
        path = os.path.join(self.folder, name)
        if not authority:
            certificates.certify(self.folder, name)
            return path
        request = [*certificates.KEY, "-subj", f"/CN={name}", "-keyout", f"{path}.key", "-out", f"{path}.csr"]
        subprocess.run(request, check=True, capture_output=True)
        names = self.file("names", "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        sign = ["openssl", "x509", "-req", "-in", f"{path}.csr", "-days", "2", "-CAcreateserial", "-extfile", names]
        issuer = ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key"]
        subprocess.run([*sign, *issuer, "-out", f"{path}.pem"], check=True, capture_output=True)
        return path

    def etcd_flags(self):
        if self.certificates is None:
            self.ca = self.certify("ca")
            self.certificates = self.certify("server", self.ca)
            self.own = self.certify("own", self.ca)
        return [
            "--cert-file",
            self.certificates + ".pem",
            "--key-file",
            self.certificates + ".key",
            "--trusted-ca-file",
            self.ca + ".pem",
            "--client-cert-auth",
        ]

    def context(self):
        context = ssl.create_default_context(cafile=self.ca + ".pem")
        context.load_cert_chain(self.own + ".pem", self.own + ".key")
        return context

    def test_a_job_by_tls(self):
        ca = ["--etcd-ca", self.ca + ".pem"]
        own = ["--etcd-cert", self.own + ".pem", "--etcd-key", self.own + ".key"]
        self.keeps_a_job(*ca, *own, address="etcds")
        other = self.certify("other")
        self.assertRegex(
            self.refused("--etcd-ca", other + ".pem", *own, address="etcds"),
            "does not prove that it is 127.0.0.1: .*--etcd-ca",
        )
        self.assertIn("wants a certificate of this side", self.refused(*ca, address="etcds"))
        self.assertIn("write --backend etcds://", self.refused(*ca))
        self.tells("etcds:// if it has TLS")
        self.assertIn("--etcd-ca: ", self.refused("--etcd-ca", "/none", address="etcds"))
        self.scheme = "http"
        self.kill("etcd")
        self.etcd_flags = lambda: []
        self.start_etcd()
        self.ask_etcd("kv/range", key=b64("x"))
        self.tells("etcd:// if it has no TLS", *ca, address="etcds")


def load_tests(loader, *_):
    """Loads only the tests of this file, without those of the base class."""
    return unittest.TestSuite(
        case(name) for case in (UsersTest, TlsTest) for name in vars(case) if name.startswith("test_")
    )


if __name__ == "__main__":
    etcd_loss_test.SERVER = sys.argv.pop(1)
    unittest.main(verbosity=2)
