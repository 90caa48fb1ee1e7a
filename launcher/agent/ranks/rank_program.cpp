#include "launcher/agent/ranks/rank_program.h"

#include <chrono>
#include <cstdint>

namespace hvd::launcher {

void RankProgram::see(const LibraryUsers::Program& program, const Environment& given,
                      Clock::time_point now) {
  program_ = program;
  if (program.variables) changes_ = changes_between(given, *program.variables);
  if (!has_torch() || program.is_connected)
    alone_.reset();
  else
    alone_ = {alone_ ? alone_->first : now, now};
}

bool RankProgram::may_search() const {
  const bool is_changed = program_.variables && !changes_.empty();
  return is_changed && !program_.is_connected && (has_torch() || !has_library());
}

void RankProgram::add_to(RankSigns& signs) const {
  signs.has_torch = has_torch() ? 1 : 0;
  signs.changes = changes_;
  if (!alone_) return;
  const auto time =
      std::chrono::duration_cast<std::chrono::milliseconds>(alone_->second - alone_->first);
  signs.alone_milliseconds = static_cast<uint64_t>(time.count());
}

}  // namespace hvd::launcher
