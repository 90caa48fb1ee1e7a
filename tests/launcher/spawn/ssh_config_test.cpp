#include "launcher/spawn/ssh_config.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

SshConfig read(const std::vector<std::string>& files, const std::string& host = "node7",
               const SshConfigSource& include = [](std::string_view) {
                 return std::vector<std::string>();
               }) {
  return read_ssh_config(files, SshConfigQuery{host, "", "alice"}, include);
}

TEST_CASE("the first value counts, over blocks and files") {
  const SshConfig config = read({"Host node*\n  StrictHostKeyChecking yes\n  HostName %h.cluster\n"
                                 "Host *\n  StrictHostKeyChecking no\n",
                                 "IdentitiesOnly yes\nHostName other\n"});
  CHECK(config.strict_host_key_checking == "yes");
  CHECK(config.host_name == "%h.cluster");
  CHECK(config.identities_only);
}

TEST_CASE("identity files add up in their order, and none is none") {
  const SshConfig config =
      read({"IdentityFile ~/.ssh/a\nHost x\nIdentityFile ~/.ssh/x\nHost node7\n"
            "IdentityFile \"/with space/b\"\nIdentityFile none\n"});
  CHECK(config.identity_files == std::vector<std::string>{"~/.ssh/a", "/with space/b"});
}

TEST_CASE("keywords are found in any case, with = and quotes, comments are not") {
  const SshConfig config = read({"# HostKeyAlias no\n\thostkeyALIAS = \"the cluster\" # why\r\n"
                                 "StrictHostKeyChecking=ACCEPT-NEW\n"});
  CHECK(config.host_key_alias == "the cluster");
  CHECK(config.strict_host_key_checking == "accept-new");
}

TEST_CASE("patterns match whole names, and a negated one wins") {
  CHECK(matches_pattern("node7.cluster", "node?.*"));
  CHECK(matches_pattern("NODE7", "node7"));
  CHECK_FALSE(matches_pattern("node17", "node?"));
  CHECK_FALSE(matches_pattern("node7", ""));
  CHECK(matches_pattern("", "*"));
  CHECK(matches_pattern_list("node7", {"!login", "node*"}));
  CHECK_FALSE(matches_pattern_list("login", {"*", "!login"}));
  CHECK_FALSE(matches_pattern_list("node7", {"!login"}));
  CHECK_FALSE(matches_pattern(std::string(2000, 'a') + "b", std::string(40, '*') + "a*a*a*c"));
}

TEST_CASE("what libssh cannot do is named, unless the value asks for nothing") {
  CHECK(read({"ProxyJump login"}).beyond_libssh == "ProxyJump");
  CHECK(read({"ProxyCommand nc %h %p"}).beyond_libssh == "ProxyCommand");
  CHECK(read({"HostbasedAuthentication yes"}).beyond_libssh == "HostbasedAuthentication");
  CHECK(read({"CertificateFile ~/.ssh/cert"}).beyond_libssh == "CertificateFile");
  CHECK(read({"HostbasedAuthentication no\nProxyJump none\n"}).beyond_libssh.empty());
  // ProxyJump and ProxyCommand share one value.
  CHECK(read({"ProxyJump none\nProxyCommand nc %h %p\n"}).beyond_libssh.empty());
  CHECK(read({"Host other\nProxyJump login\n"}).beyond_libssh.empty());
}

TEST_CASE("Match blocks are judged where that needs no command") {
  const std::string block = "\nHostKeyAlias found\n";
  CHECK(read({"Match host node7" + block}).host_key_alias == "found");
  CHECK(read({"HostName n7\nMatch host n7" + block}).host_key_alias == "found");
  CHECK(read({"HostName n7\nMatch originalhost node7 user alice" + block}).host_key_alias ==
        "found");
  CHECK(read({"Match user bob,carol" + block}).host_key_alias.empty());
  CHECK(read({"Match !host node7" + block}).host_key_alias.empty());
  CHECK(read({"Match localuser alice all" + block}).host_key_alias == "found");
  CHECK(read({"Match final all" + block}).host_key_alias == "found");
  CHECK(read({"Match canonical" + block}).host_key_alias.empty());

  CHECK(read({"Match exec \"test -e /x\"" + block}).beyond_libssh == "Match exec");
  CHECK(read({"Match host other exec \"test -e /x\"" + block}).beyond_libssh.empty());
  CHECK(read({"Match host"}).beyond_libssh.empty());
}

TEST_CASE("included files are read in their place and their blocks end with them") {
  const auto include = [](std::string_view pattern) {
    CHECK(pattern == "conf.d/*");
    return std::vector<std::string>{"Host other\nHostKeyAlias wrong\n", "ProxyJump login\n"};
  };
  const SshConfig config = read({"Include conf.d/*\nHostKeyAlias right\n"}, "node7", include);
  CHECK(config.host_key_alias == "right");
  CHECK(config.beyond_libssh == "ProxyJump");
  CHECK(read({"Host other\nInclude conf.d/*\n"}, "node7", include).beyond_libssh.empty());
}

TEST_CASE("a file that includes itself is read to an end") {
  SshConfigSource include;
  include = [](std::string_view) { return std::vector<std::string>{"Include me\nUser x\n"}; };
  CHECK(read({"Include me"}, "node7", include).beyond_libssh.empty());
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
  for (const char* bad : {"%Z", "/a%", "${open"}) {
    CHECK(expand_ssh_path(bad, tokens, variable).empty());
  }
}

}  // namespace
}  // namespace hvd::launcher
