// Formats the frame that `horovodrun top` shows of a job, and handles keys that change it. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "launcher/observe/views/full_screen.h"
#include "launcher/observe/views/job_view.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {

// If a job has more ranks, a row is a host, unless the user requests ranks.
constexpr size_t kMostRows = 40;

enum class TopOrder : uint8_t { kRank, kCpu, kMemory, kStep };

struct TopChoice {
  TopOrder order = TopOrder::kRank;
  bool is_folded = false;        // one row per host
  bool has_chosen_fold = false;  // false: the number of ranks decides
  bool is_paused = false;
  bool shows_help = false;
  bool is_filtering = false;  // keys go to the filter
  std::string filter;         // part of a host's name, of a state, or of an awaited operation
  size_t first = 0;           // the row at the top
};

// Returns false for the key that ends the command. `rows`: rows of the terminal.
bool take_keys(TopChoice& choice, std::span<const Key> keys, size_t rows);

struct TopLook {
  TerminalSize size{};
  bool has_color = false;
  bool is_utf8 = false;
  std::string notice{};  // a short message such as "no answer for 3 s", or empty
};

// Returns at most `size.rows` lines of at most `size.columns`. If `size.rows` is 0: all rows, and no line about keys.
std::string top_frame(const JobView& job, const JobRates& rates, TopChoice& choice,
                      const TopLook& look);

}  // namespace hvd::launcher
