#include "launcher/agent/stacks/rank_place.h"

#include <algorithm>
#include <string_view>

namespace hvd::launcher {
namespace {

// Continues the FNV-1a hash `before` with the text.
uint64_t digest(uint64_t before, std::string_view text) {
  for (const char byte : text) before = (before ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return (before ^ 0xff) * 0x100000001b3;
}

bool is_of_debugger(const PythonFrame& frame) {
  const std::string_view file = frame.file;
  const auto has = [&](std::string_view part) { return file.find(part) != std::string_view::npos; };
  return file.ends_with("/pdb.py") || file.ends_with("/bdb.py") || file.ends_with("/code.py") ||
         file.ends_with("/getpass.py") || has("/debugpy/") || has("/pydevd") || has("/ipdb/") ||
         has("/IPython/");
}

// Returns whether a program in this frame waits for its clients.
bool is_of_server(const PythonFrame& frame) {
  const std::string_view file = frame.file;
  return file.ends_with("/asyncio/base_events.py") || file.ends_with("/asyncio/runners.py") ||
         file.ends_with("/socketserver.py") ||
         (file.ends_with("/socket.py") && frame.function == "accept");
}

// Returns whether a program without a readable stack waits for one of several descriptors, or for a client.
bool may_serve(const WaitSigns& signs) {
  constexpr std::string_view kOfServers[] = {"poll_schedule", "ep_poll", "do_epoll",
                                             "inet_csk_accept"};
  return !signs.no_stack.empty() && std::ranges::any_of(kOfServers, [&](auto each) {
    return signs.channel.starts_with(each);
  });
}

// Returns the library function that the user's code has called, else the user's own function.
std::string function_of(const PythonStack& stack) {
  const PythonFrame* const own = own_frame(stack);
  if (own == nullptr) return {};
  const bool is_inner = own == stack.data();
  return (is_inner ? own : own - 1)->function;
}

}  // namespace

RankPlace place_of_rank(const WaitSigns& signs, const std::string& state) {
  const NamedWait wait = named_wait(signs);
  RankPlace place{.library = wait.library,
                  .operation = wait.operation,
                  .function = function_of(signs.stack),
                  .line = place_of(signs.stack),
                  .state = state,
                  .no_stack = signs.no_stack};
  const bool serves = wait.library.empty() && std::ranges::any_of(signs.stack, is_of_server);
  const bool is_excused =
      serves || may_serve(signs) || std::ranges::any_of(signs.stack, is_of_debugger);
  place.is_excused = is_excused ? 1 : 0;
  place.is_collective = is_for_ranks(wait, signs) || may_be_for_ranks(signs) ? 1 : 0;
  place.frames = 0xcbf29ce484222325;
  for (const PythonFrame& frame : signs.stack) {
    place.frames = digest(digest(place.frames, frame.function), frame.file) +
                   static_cast<uint64_t>(frame.line);
  }
  if (signs.stack.empty()) place.frames = digest(place.frames, state);
  for (std::string* text : {&place.library, &place.operation, &place.function, &place.line,
                            &place.state, &place.no_stack}) {
    if (text->size() > kMostPlaceText) text->resize(kMostPlaceText);
  }
  return place;
}

}  // namespace hvd::launcher
