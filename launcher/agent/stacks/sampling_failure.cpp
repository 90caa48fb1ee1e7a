#include "launcher/agent/stacks/sampling_failure.h"

#include "base/text.h"

namespace hvd::launcher {
namespace {

bool has_words(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string why_refused(const ReadAccess& access) {
  if (access.uid != access.own_uid && access.own_uid != 0) {
    return cat("it runs as another user (uid ", access.uid,
               "), whose memory only that user and root may read: run horovodrun as that user");
  }
  if (access.yama_scope >= 3) {
    return "kernel.yama.ptrace_scope is 3 on this host, and no process may read another one until "
           "the next boot: set it to 1 in /etc/sysctl.d and reboot";
  }
  if (access.yama_scope == 2) {
    return "kernel.yama.ptrace_scope is 2 on this host, and only processes with CAP_SYS_PTRACE may "
           "read others: run sysctl kernel.yama.ptrace_scope=1 as root";
  }
  if (access.yama_scope == 1 && !access.is_first_process) {
    return "kernel.yama.ptrace_scope is 1 on this host, and only the first process of a rank "
           "admits "
           "the agent: write exec before the command in the rank's script, or run sysctl "
           "kernel.yama.ptrace_scope=0 as root";
  }
  return "the kernel refuses process_vm_readv, as in a container with a strict seccomp profile: "
         "give the container the capability SYS_PTRACE (--cap-add SYS_PTRACE)";
}

// Returns the line with py-spy's error. py-spy may print its own stack after that line.
std::string error_line(std::string_view errors) {
  constexpr std::string_view kError = "Error: ";
  const size_t at = errors.find(kError);
  if (at != std::string_view::npos) errors.remove_prefix(at + kError.size());
  return printable(trim(take_line(errors)));
}

}  // namespace

std::string why_no_stack(std::string_view errors, const ReadAccess& access) {
  const std::string text = to_lower(errors);
  if (has_words(text, "permission denied") || has_words(text, "not permitted") ||
      has_words(text, "not implemented")) {
    return why_refused(access);
  }
  constexpr std::string_view kUnsupported = "unsupported version of python: ";
  if (const size_t at = text.find(kUnsupported); at != std::string::npos) {
    std::string_view rest = std::string_view(text).substr(at + kUnsupported.size());
    return cat("py-spy does not know Python ", printable(trim(take_line(rest)), 40),
               ": install a newer one (pip install -U py-spy)");
  }
  if (has_words(text, "failed to find python version") || has_words(text, "failed to get python")) {
    return "py-spy finds no Python that it knows in this process: a newer one may (pip install -U "
           "py-spy)";
  }
  const std::string words = error_line(errors);
  return words.empty() ? "py-spy ended without a word" : cat("py-spy: ", words);
}

std::string several_pythons(size_t count) {
  return cat(count,
             " processes with Python run side by side in this rank, and none of them is above the "
             "others: horovodrun exec --rank N py-spy dump --nonblocking --pid PID shows one");
}

}  // namespace hvd::launcher
