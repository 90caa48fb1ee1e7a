#include "launcher/observe/views/top_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launcher/observe/views/job_view.h"
#include "launcher/output/launch_progress.h"

namespace hvd::launcher {
namespace {

using Cells = std::vector<std::string>;

// Number of rows above and below the rows of ranks.
constexpr size_t kAround = 5;

std::string milliseconds(double seconds) {
  return seconds < 0 ? "-" : fmt::format("{:.0f} ms", seconds * 1000);
}

bool is_up(const HostView& host, const RankView& rank) {
  return rank.rank >= 0 && rank.pid >= 0 && !rank.is_stopped && host.silence == 0;
}

std::string state_of(const RankLine& line) {
  const bool is_lost = line.host->state == "lost" && !line.rank->is_over();
  return is_lost ? "lost" : line.host->silence > 0 ? "no answer" : state_text(*line.rank);
}

// Returns red if the host does not answer: the text of the state is then about the host.
std::string_view state_color(const RankLine& line) {
  return line.host->silence > 0 ? kRed : state_color(*line.host, *line.rank);
}

bool is_wanted(const RankLine& line, const std::string& filter) {
  const auto has = [&](std::string_view text) { return text.find(filter) != std::string::npos; };
  return filter.empty() || has(line.host->name) || has(state_of(line)) ||
         has(line.rank->waits_for) || cat(line.rank->rank) == filter;
}

std::vector<RankLine> lines_of(const JobView& job, const JobRates& rates, const TopChoice& choice,
                               bool has_color) {
  std::vector<RankLine> lines;
  for (const HostView* const host : present_hosts(job)) {
    for (const RankView& rank : host->ranks) {
      if (job.generation >= 0 && rank.rank < 0 && rank.is_over()) continue;
      RankLine line{&job, host, &rank, has_color, rates.of(rank)};
      if (is_wanted(line, choice.filter)) lines.push_back(std::move(line));
    }
  }
  std::ranges::stable_sort(lines, [&choice](const RankLine& one, const RankLine& other) {
    switch (choice.order) {
      case TopOrder::kCpu:
        return one.rates.cpu > other.rates.cpu;
      case TopOrder::kMemory:
        return one.rank->memory > other.rank->memory;
      case TopOrder::kStep:
        return one.rank->steps.value_or(0) < other.rank->steps.value_or(0);
      case TopOrder::kRank:
        break;
    }
    return static_cast<unsigned>(one.rank->rank) < static_cast<unsigned>(other.rank->rank);
  });
  return lines;
}

// The ranks of one host, shown as one row.
struct Fold {
  struct Count {
    int ranks = 0;
    std::string_view color{};
  };
  const HostView* host = nullptr;
  std::string_view color{};  // color of its slowest rank
  std::map<std::string, Count> states{};
  uint64_t steps = 0;
  bool has_steps = false;
  double cpu = -1, memory = -1;
  int waiting = 0;
};

std::string folded(const std::vector<RankLine>& lines, bool has_color, size_t columns) {
  std::vector<Fold> folds;
  std::map<const HostView*, size_t> index;
  for (const RankLine& line : lines) {
    const auto [found, is_new] = index.try_emplace(line.host, folds.size());
    if (is_new) folds.push_back({.host = line.host});
    Fold& fold = folds[found->second];
    Fold::Count& count = fold.states[state_of(line)];
    ++count.ranks;
    count.color = state_color(line);
    if (const auto color = rank_color(*line.job, *line.rank); !color.empty()) fold.color = color;
    if (line.rank->steps) {
      fold.steps = fold.has_steps ? std::min(fold.steps, *line.rank->steps) : *line.rank->steps;
      fold.has_steps = true;
    }
    if (line.rates.cpu >= 0) fold.cpu = std::max(fold.cpu, 0.0) + line.rates.cpu;
    if (line.rank->memory >= 0)
      fold.memory = std::max(fold.memory, 0.0) + static_cast<double>(line.rank->memory);
    fold.waiting += line.rank->waits_for.empty() ? 0 : 1;
  }
  std::vector<Cells> rows = {{"HOST", "RANKS", "STATES", "STEP", "CPU", "MEMORY", "WAITING"}};
  for (const Fold& fold : folds) {
    std::vector<std::string> states;
    int ranks = 0;
    for (const auto& [state, count] : fold.states) {
      states.push_back(paint(cat(count.ranks, " ", state), count.color, has_color));
      ranks += count.ranks;
    }
    const std::string_view color = host_color(*fold.host);
    rows.push_back(
        {paint(printable(fold.host->name), color.empty() ? fold.color : color, has_color),
         cat(ranks), join(states, ", "), fold.has_steps ? cat(fold.steps) : "-", percent(fold.cpu),
         size_text(fold.memory), fold.waiting == 0 ? "-" : cat(fold.waiting)});
  }
  return aligned(rows, {false, true, false, true, true, true, true}, columns);
}

std::string title_of(const JobView& job, const TopLook& look) {
  const std::string name = job.name.empty() ? "" : cat(printable(job.name), ", ");
  const std::string generation = job.generation < 0 ? "" : cat(", generation ", job.generation);
  // Put the notice first: a long command is cut.
  return cat(look.notice.empty() ? "" : cat("[", look.notice, "] "), name, "pid ", job.pid,
             generation, ": ", printable(join(job.command, " "), std::string::npos));
}

std::string progress_of(const JobView& job, const JobRates& rates, const TopLook& look) {
  JobProgress progress{.size = job.size,
                       .steps_per_second = rates.job().steps_per_second(),
                       .bytes_per_second = rates.job().bytes_per_second(),
                       .seconds = job.seconds};
  for (const HostView& host : job.hosts) {
    for (const RankView& rank : host.ranks) {
      progress.up += is_up(host, rank) ? 1 : 0;
      if (job.slowest >= 0 && rank.rank == job.slowest)
        progress.slowest = {job.slowest, host.name, job.late_seconds};
    }
  }
  return job_line(progress, look.size.columns, look.is_utf8, look.has_color);
}

std::string hosts_line(const JobView& job, bool has_color) {
  std::map<std::string, int> states{};
  std::vector<std::string> notable;
  const std::vector<const HostView*> hosts = present_hosts(job);
  for (const HostView* const host : hosts) {
    ++states[printable(host->state)];
    if (!host->is_over() && !is_past_start(*host))
      notable.push_back(cat(printable(host->name), ": ", printable(stage_text(*host)), " ",
                            static_cast<int64_t>(host->seconds), " s"));
    if (host->silence > 0) notable.push_back(paint(silence_text(*host), kRed, has_color));
  }
  std::vector<std::string> parts;
  for (const auto& [state, count] : states)
    parts.push_back(paint(cat(count, " ", state), state == "lost" ? kRed : "", has_color));
  std::string line =
      cat(hosts.size(), hosts.size() == 1 ? " host: " : " hosts: ", join(parts, ", "));
  if (!notable.empty()) line += cat("; ", join(notable, ", "));
  return line;
}

std::string order_name(TopOrder order) {
  constexpr const char* kNames[] = {"rank", "CPU", "memory", "step"};
  return kNames[static_cast<size_t>(order)];
}

std::string keys_line(const TopChoice& choice, size_t shown, size_t all) {
  if (choice.is_filtering) return cat("filter: ", choice.filter, "_");
  std::string line = "q quit  h help";
  if (shown < all) line = cat(choice.first + 1, "-", choice.first + shown, " of ", all, "  ", line);
  line += cat("  s sort: ", order_name(choice.order), "  f fold  / filter");
  if (!choice.filter.empty()) line += cat(": ", printable(choice.filter));
  return line + (choice.is_paused ? "  p go on" : "  p pause");
}

constexpr std::string_view kHelp =
    "q            quit; the job goes on\n"
    "s            sort by rank, CPU, memory or step\n"
    "f, Enter     one row for each host, or for each rank\n"
    "/            show the rows with a text; Enter ends it, Esc shows all\n"
    "p, space     stop and go on\n"
    "up, down, page up, page down, home, end   other rows\n"
    "h, ?         this help\n"
    "\n"
    "STEP   training steps            TIME    of a step\n"
    "WAIT   share of a step until all ranks had agreed\n"
    "CPU    share of a core           DELAY   share of time without a processor\n";

std::string_view first_rows(std::string_view lines, size_t rows) {
  std::string_view rest = lines;
  while (rows-- > 0 && !rest.empty()) take_line(rest);
  return lines.substr(0, lines.size() - rest.size());
}

std::string clipped(std::string_view lines, size_t columns, size_t rows) {
  lines = first_rows(lines, rows);
  std::string text;
  while (!lines.empty()) text += cat(cut_colored(take_line(lines), columns), "\n");
  return text;
}

// Moves the rows. Returns false for any other key.
bool move_rows(TopChoice& choice, Key::Kind key, size_t page) {
  switch (key) {
    case Key::Kind::kUp:
      choice.first -= std::min<size_t>(choice.first, 1);
      return true;
    case Key::Kind::kDown:
      ++choice.first;
      return true;
    case Key::Kind::kPageUp:
      choice.first -= std::min(choice.first, page);
      return true;
    case Key::Kind::kPageDown:
      choice.first += page;
      return true;
    case Key::Kind::kHome:
      choice.first = 0;
      return true;
    case Key::Kind::kEnd:
      choice.first = SIZE_MAX / 2;
      return true;
    default:
      return false;
  }
}

void edit_filter(TopChoice& choice, char key) {
  if (key == '\n' || key == '\r') {
    choice.is_filtering = false;
  } else if (key == '\x7f' || key == '\b') {
    if (!choice.filter.empty()) choice.filter.pop_back();
  } else if (key >= ' ' && key < '\x7f') {
    choice.filter += key;
  }
  choice.first = 0;
}

void escape(TopChoice& choice) {
  if (std::exchange(choice.is_filtering, false)) choice.first = 0;
  choice.filter.clear();
  choice.shows_help = false;
}

void choose(TopChoice& choice, char key) {
  switch (key) {
    case 's':
      choice.order = static_cast<TopOrder>((static_cast<int>(choice.order) + 1) % 4);
      break;
    case 'p':
    case ' ':
      choice.is_paused = !choice.is_paused;
      break;
    case 'h':
    case '?':
      choice.shows_help = !choice.shows_help;
      break;
    case 'f':
    case '\r':
    case '\n':
      choice.is_folded = !choice.is_folded;
      choice.has_chosen_fold = true;
      choice.first = 0;
      break;
    case '/':
      choice.is_filtering = true;
      choice.filter.clear();
      break;
    default:
      break;
  }
}

}  // namespace

bool take_keys(TopChoice& choice, std::span<const Key> keys, size_t rows) {
  for (const Key key : keys) {
    if (key.kind == Key::Kind::kEscape)
      escape(choice);
    else if (move_rows(choice, key.kind, rows > kAround ? rows - kAround : 1))
      continue;
    else if (choice.is_filtering)
      edit_filter(choice, key.character);
    else if (key.character == 'q' || key.character == 'Q')
      return false;
    else
      choose(choice, key.character);
  }
  return true;
}

std::string top_frame(const JobView& job, const JobRates& rates, TopChoice& choice,
                      const TopLook& look) {
  const size_t columns = look.size.columns;
  std::string head = cat(cut(title_of(job, look), columns), "\n", progress_of(job, rates, look),
                         "\n", cut_colored(hosts_line(job, look.has_color), columns), "\n");
  if (choice.shows_help) return clipped(cat(head, "\n", kHelp), columns, look.size.rows);
  const std::vector<RankLine> lines = lines_of(job, rates, choice, look.has_color);
  if (!choice.has_chosen_fold) choice.is_folded = lines.size() > kMostRows;
  const std::array top_columns = {
      kRankColumn,
      kHostColumn,
      kPidColumn,
      RankColumn{"STATE", false,
                 [](const RankLine& line) {
                   return paint(state_of(line), state_color(line), line.has_color);
                 }},
      RankColumn{"STEP", true,
                 [](const RankLine& line) {
                   return line.rank->steps ? cat(*line.rank->steps) : std::string("-");
                 }},
      RankColumn{"TIME", true,
                 [](const RankLine& line) { return milliseconds(line.rank->step_seconds); }},
      RankColumn{"WAIT", true,
                 [](const RankLine& line) { return percent(line.rank->waited_share); }},
      RankColumn{"CPU", true, [](const RankLine& line) { return percent(line.rates.cpu); }},
      RankColumn{"DELAY", true, [](const RankLine& line) { return percent(line.rates.run_delay); }},
      kMemoryColumn,
      kGpuColumn,
      kWaitColumn};
  const std::string table = choice.is_folded ? folded(lines, look.has_color, columns)
                                             : table_of(top_columns, job, lines, columns);
  const size_t all = static_cast<size_t>(std::ranges::count(table, '\n')) - 1;
  if (look.size.rows == 0) return cat(head, table);
  const size_t room = look.size.rows > kAround ? look.size.rows - kAround : 0;
  choice.first = std::min(choice.first, all > room ? all - room : 0);
  std::string_view rest = table;
  const std::string_view titles = take_line(rest);
  std::string frame =
      cat(head, look.has_color ? "\x1b[7m" : "", titles, look.has_color ? "\x1b[0m" : "", "\n");
  for (size_t i = 0; i < choice.first; ++i) take_line(rest);
  size_t shown = 0;
  for (; shown < room && !rest.empty(); ++shown) frame += cat(take_line(rest), "\n");
  for (size_t i = shown; i < room; ++i) frame += "\n";
  frame += cat(cut(keys_line(choice, shown, all), columns), "\n");
  return std::string(first_rows(frame, look.size.rows));
}

}  // namespace hvd::launcher
