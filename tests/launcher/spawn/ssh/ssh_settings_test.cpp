#include "launcher/spawn/ssh/ssh_settings.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

SshSettings parsed(const std::string& lines) {
  const auto settings = parse_ssh_settings("hostname n7\n" + lines);
  REQUIRE(settings);
  return *settings;
}

TEST_CASE("the settings of a host are taken from ssh's own output") {
  const auto settings = parse_ssh_settings(
      "debug1: Reading configuration data /root/.ssh/config\n"
      "host a\nuser bob\nhostname a.cluster\nport 2202\naddressfamily inet\ncompression yes\n"
      "stricthostkeychecking accept-new\nhostkeyalias cluster\nidentityfile ~/my key\n"
      "identityfile /b\nidentityagent none\nuserknownhostsfile /root/k1 /root/k2\n"
      "globalknownhostsfile /etc/k\nciphers aes128-ctr\ngssapiauthentication yes\n"
      "hashknownhosts yes\ncontrolpath /root/x\nidentitiesonly yes\nproxyjump "
      "none\nsecuritykeyprovider internal\n");
  REQUIRE(settings);
  CHECK(settings->host_name == "a.cluster");
  CHECK(settings->user == "bob");
  CHECK(settings->port == 2202);
  CHECK(settings->address_family == "inet");
  CHECK(settings->compression);
  CHECK(settings->strict_host_key_checking == "accept-new");
  CHECK(settings->host_key_alias == "cluster");
  CHECK(settings->identity_files == std::vector<std::string>{"~/my key", "/b"});
  CHECK(settings->identity_agent == "none");
  CHECK(settings->user_known_hosts_files == std::vector<std::string>{"/root/k1", "/root/k2"});
  CHECK(settings->global_known_hosts_files == std::vector<std::string>{"/etc/k"});
  CHECK(settings->ciphers == "aes128-ctr");
  CHECK(settings->hashes_names);
  CHECK(settings->has_gssapi);
  CHECK(settings->has_control_path);
  CHECK(settings->identities_only);
  CHECK(settings->beyond_libssh.empty());
}

TEST_CASE("output that is no answer gives no settings") {
  for (const char* text : {"", "usage: ssh ...\n", "config: line 1: Bad configuration option\n"}) {
    CHECK_FALSE(parse_ssh_settings(text));
  }
}

TEST_CASE("a setting that libssh does not honour is named, unless its value asks for nothing") {
  CHECK(parsed("proxyjump login\n").beyond_libssh == "ProxyJump");
  CHECK(parsed("proxycommand nc %h %p\n").beyond_libssh == "ProxyCommand");
  CHECK(parsed("certificatefile ~/.ssh/cert\n").beyond_libssh == "CertificateFile");
  CHECK(parsed("checkhostip yes\n").beyond_libssh == "CheckHostIP");
  CHECK(parsed("verifyhostkeydns ask\n").beyond_libssh == "VerifyHostKeyDNS");
  CHECK(parsed("securitykeyprovider /x.so\n").beyond_libssh == "SecurityKeyProvider");
  CHECK(parsed("pubkeyauthentication false\n").beyond_libssh == "PubkeyAuthentication no");
  CHECK(parsed("pubkeyauthentication true\ncheckhostip no\nproxycommand none\n"
               "canonicalizehostname false\n")
            .beyond_libssh.empty());
}

TEST_CASE("ssh quotes no file names, and one with a space is its own business") {
  CHECK(parsed("userknownhostsfile /root/k1 /root/k 2\n").beyond_libssh.find("/root/k 2") !=
        std::string::npos);
  CHECK(parsed("userknownhostsfile none\n").user_known_hosts_files.empty());
}

TEST_CASE("lines that tell hosts apart are found, and others are not") {
  for (const char* line :
       {"Host a", "host=a", " HOST * !a", "\"Host\" a", "Match host a", "Match exec true",
        "match originalhost a", "HostName x", "IdentityFile ~/%h", "CanonicalizeHostname yes",
        "ProxyCommand nc %h %p # %", "Match final host a", "Compression no # 100%"}) {
    CAPTURE(line);
    CHECK(depends_on_host(std::string("# x\n") + line + "\n"));
  }
  CHECK_FALSE(depends_on_host(
      "# Host a, %h\nInclude /etc/ssh/ssh_config.d/*.conf\n\nHost *\n  SendEnv LANG LC_*\r\n"
      "HashKnownHosts yes\nHost=\"*\"\nHostKeyAlias x\nMatch final all\nMatch all\n"
      "HostKeyAlgorithms ssh-ed25519\n"));
}

TEST_CASE("an explicit ask differs from the default") {
  CHECK(asks_about_new_keys("Host x\n  stricthostkeychecking=\"ASK\"\n"));
  CHECK_FALSE(asks_about_new_keys("# StrictHostKeyChecking ask\nStrictHostKeyChecking no\n"));
}

TEST_CASE("the files that ssh read are named by its messages") {
  CHECK(configuration_files("OpenSSH_9.2\ndebug1: Reading configuration data /a b\n"
                            "debug1: /a b line 1: Applying options for *\nhost x\n"
                            "debug1: Reading configuration data c\n") ==
        std::vector<std::string>{"/a b", "c"});
}

TEST_CASE("names that ssh would write otherwise are none of the canonical ones") {
  for (const char* name : {"a", "node7.cluster", "n-1_x", "10.0.0.1"})
    CHECK(is_canonical_name(name));
  for (const char* name :
       {"", "A", "127.1", "010.0.0.1", "0x7f.1", "::1", "1", "10.0.0.256", "ä"}) {
    CAPTURE(name);
    CHECK_FALSE(is_canonical_name(name));
  }
}

TEST_CASE("tokens of a path are expanded, unknown ones leave nothing") {
  SshTokens tokens;
  tokens.home = "/home/alice";
  tokens.remote_host = "node7";
  tokens.remote_user = "bob";
  const auto variable = [](std::string_view name) { return "<" + std::string(name) + ">"; };
  CHECK(expand_ssh_path("~/.ssh/%h_%r%%", tokens, variable) == "/home/alice/.ssh/node7_bob%");
  CHECK(expand_ssh_path("${KEYS}/id", tokens, variable) == "<KEYS>/id");
  CHECK(expand_ssh_path("/a/~", tokens, variable) == "/a/~");
  for (const char* bad : {"%Z", "/a%", "${open", "~bob/x"}) {
    CHECK_FALSE(expand_ssh_path(bad, tokens, variable));
  }
}

TEST_CASE("the end of a certificate's validity is what ssh-keygen prints") {
  const auto end_of = [](const std::string& words) {
    return end_of_validity("id-cert.pub:\n        Serial: 0\n        Valid: " + words +
                           "\n        Principals: \n                to me\n");
  };
  CHECK(end_of("from 2026-11-28T01:16:14 to 2026-11-28T02:16:14") == "2026-11-28T02:16:14");
  CHECK(end_of("before 2026-11-28T02:16:14") == "2026-11-28T02:16:14");
  CHECK(end_of("after 2026-11-28T02:16:14").empty());
  CHECK(end_of("forever").empty());
  CHECK(end_of_validity("id-cert.pub is not a certificate\n").empty());
}

}  // namespace
}  // namespace hvd::launcher
