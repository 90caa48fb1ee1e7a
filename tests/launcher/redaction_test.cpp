#include "launcher/plan/redaction.h"

#include <doctest/doctest.h>

using namespace hvd::launcher;

namespace {

const std::pair<std::string, std::string> kVariables[] = {
    {"WANDB_API_KEY", "wandb-value"},
    {"MY_PASSWORD", "longer wandb-value"},
    {"SSH_AUTH_SOCK", "/tmp/agent.1"},
    {"TOKEN_FILE", "~/.token/file"},
    {"KEY_FILE", "./keys/job.pem"},
    {"AWS_SECRET_ACCESS_KEY", "wJalr/K7MDENG/bPx+RfiCY"},
    {"A_KEY", "1"},
    {"HOME", "/home/me"}};

std::string redact(std::string_view line) { return Redactor(kVariables).redact(line); }

}  // namespace

TEST_CASE("names of secrets are known") {
  for (const char* name : {"HOROVOD_JOB_SECRET", "SLURM_JWT", "tls_key", "--api-key", "DB_PASSWD"})
    CHECK(is_secret_name(name));
  for (const char* name : {"HOROVOD_RANK", "HOROVOD_AUTOTUNE", "SLURM_JOB_ID", "OMP_NUM_THREADS"})
    CHECK_FALSE(is_secret_name(name));
  CHECK(Redactor(kVariables).redact("job_secret", "00") == "<redacted>");
  CHECK(Redactor(kVariables).redact("rank", "00") == "00");
}

TEST_CASE("the value of a secret variable is hidden wherever it occurs") {
  CHECK(redact("curl wandb-value twice wandb-value") == "curl <redacted> twice <redacted>");
  CHECK(redact("a longer wandb-value b") == "a <redacted> b");
  CHECK(redact("1 of /tmp/agent.1 in /home/me") == "1 of /tmp/agent.1 in /home/me");
  CHECK(redact("read ~/.token/file, ./keys/job.pem") == "read ~/.token/file, ./keys/job.pem");
}

TEST_CASE("a secret that holds a slash is no path") {
  CHECK(redact("denied: wJalr/K7MDENG/bPx+RfiCY.") == "denied: <redacted>.");
}

TEST_CASE("users and passwords of URLs are hidden") {
  CHECK(redact("http://me:p@ss/w@proxy:3128") == "http://<redacted>@proxy:3128");
  CHECK(redact("a https://me@h, b") == "a https://<redacted>@h, b");
  CHECK(redact("https://host:1/path") == "https://host:1/path");
  CHECK(redact("tcp:a:1 x@y") == "tcp:a:1 x@y");
}

TEST_CASE("a value after a secret name is hidden") {
  CHECK(redact("export TOKEN=a b") == "export TOKEN=<redacted>");
  CHECK(redact("run --password 'a b'") == "run --password <redacted>");
  CHECK(redact("curl -H 'Authorization: Basic eA=='") == "curl -H 'Authorization:<redacted>");
  CHECK(redact("KeyError: 'x'") == "KeyError: 'x'");
  CHECK(redact("the secret is out") == "the secret is out");
}

TEST_CASE("long hexadecimal numbers are hidden") {
  const std::string digits = "0123456789abcdefABCDEF0123456789";
  CHECK(redact("a " + digits + " b") == "a <redacted> b");
  CHECK(redact("a " + digits.substr(1) + " b") == "a " + digits.substr(1) + " b");
}

TEST_CASE("a command keeps no secrets") {
  using Words = std::vector<std::string>;
  const Redactor redactor({});
  const Words words{"env",
                    "TOKEN=s2",
                    "prog",
                    "--url=https://u:s3@h/",
                    "--password",
                    "s4",
                    "--api-key",
                    "-v",
                    "sh",
                    "-c",
                    "echo a\nMY_SECRET=s5 b\necho c",
                    "--auth=none",
                    "--lr",
                    "0.1"};
  CHECK(redactor.redact_command(words) ==
        Words{"env", "TOKEN=<redacted>", "prog", "--url=https://<redacted>@h/", "--password",
              "<redacted>", "--api-key", "-v", "sh", "-c", "echo a\nMY_SECRET=<redacted>\necho c",
              "--auth=<redacted>", "--lr", "0.1"});
}
