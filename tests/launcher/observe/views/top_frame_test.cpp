#include "launcher/observe/views/top_frame.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {
namespace {

RankView running(int rank, double age, double cpu, uint64_t steps) {
  return {.rank = rank,
          .state = "in_job",
          .pid = 100 + rank,
          .seconds = age,
          .cpu_seconds = cpu,
          .run_delay_seconds = 0,
          .memory = 1 << 20,
          .steps = steps,
          .bytes = steps * 1000,
          .step_seconds = 0.08,
          .waited_share = 0.25};
}

JobView job_of(int hosts, int ranks, double age = 10, uint64_t steps = 100) {
  JobView job{.pid = 7,
              .command = {"python3", "train.py"},
              .seconds = age,
              .size = hosts * ranks,
              .read_at = age};
  for (int host = 0; host < hosts; ++host) {
    job.hosts.push_back({.name = cat("h", host), .state = "running"});
    for (int i = 0; i < ranks; ++i)
      job.hosts.back().ranks.push_back(running(host * ranks + i, age, age / 2, steps));
  }
  return job;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::string_view rest = text;
  while (!rest.empty()) lines.emplace_back(take_line(rest));
  return lines;
}

// Types the bytes. An escape byte at the end is the Esc key.
bool type(TopChoice& choice, std::string_view bytes, size_t rows = 24) {
  KeyReader reader;
  return take_keys(choice, reader.take(bytes), rows) && take_keys(choice, reader.give_up(), rows);
}

bool has_text(const std::string& frame, const std::string& text) {
  return frame.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a frame has the rates of the job and of each rank between two answers") {
  JobRates rates;
  rates.add(job_of(2, 2, 10, 100));
  JobView job = job_of(2, 2, 12, 120);
  job.slowest = 3;
  job.late_seconds = 0.0381;
  rates.add(job);
  rates.add(job);  // the launcher has sent the same figures twice
  TopChoice choice;
  const std::string frame = top_frame(job, rates, choice, {.size = {100, 24}, .is_utf8 = true});
  const auto lines = lines_in(frame);
  REQUIRE(lines.size() == 24);
  CHECK(lines[0] == "pid 7: python3 train.py");
  CHECK(lines[1] ==
        "4/4 ranks \u00b7 10.0 steps/s \u00b7 40 kB/s \u00b7 slowest rank 3 (h1) +38 ms \u00b7 "
        "00:00:12");
  CHECK(lines[2] == "2 hosts: 2 running");
  CHECK(lines[3] == "RANK  HOST  PID  STATE   STEP   TIME  WAIT  CPU  DELAY  MEMORY  WAITS FOR");
  CHECK(lines[7] == "   3  h1    103  in_job   120  80 ms   25%  50%     0%    1.0M");
  CHECK(lines[23].starts_with("q quit  h help  s sort: rank"));
}

TEST_CASE("512 ranks fit on any terminal, by host or by rank, and every row can be reached") {
  const JobView job = job_of(64, 8);
  JobRates rates;
  TopChoice choice;
  for (const TerminalSize size : {TerminalSize{80, 24}, {200, 60}, {20, 6}, {1, 1}}) {
    for (const char* keys : {"", "f", "f", "h", "h"}) {
      type(choice, keys, size.rows);
      const auto lines = lines_in(top_frame(job, rates, choice, {.size = size}));
      CHECK(lines.size() <= size.rows);
      for (const std::string& line : lines) CHECK(width_of(line) <= size.columns);
    }
  }
  choice = {};
  const TopLook look{.size = {80, 24}};
  CHECK(has_text(top_frame(job, rates, choice, look), "h0        8  8 in_job"));
  type(choice, "f");
  CHECK(has_text(top_frame(job, rates, choice, look), "1-19 of 512"));
  type(choice, "\x1b[6~\x1b[B");
  CHECK(has_text(top_frame(job, rates, choice, look), "21-39 of 512"));
  type(choice, "\x1b[F");
  CHECK(has_text(top_frame(job, rates, choice, look), "494-512 of 512"));
}

TEST_CASE("keys sort, filter, stop and end") {
  JobView job = job_of(1, 3);
  job.hosts[0].ranks[1].memory = 1 << 30;
  job.hosts[0].ranks[2].is_stopped = true;
  JobRates rates;
  TopChoice choice;
  const TopLook look{.size = {80, 24}};
  CHECK(type(choice, "ss"));  // sorts by memory
  CHECK(lines_in(top_frame(job, rates, choice, look))[4].starts_with("   1  h0"));
  CHECK(type(choice, "/stop\rp"));
  CHECK(choice.is_paused);
  const auto lines = lines_in(top_frame(job, rates, choice, look));
  CHECK(lines[1].starts_with("2/3 ranks"));
  CHECK(lines[4].starts_with("   2  h0    102  stopped"));
  CHECK(lines[5].empty());
  CHECK(type(choice, "\x1b"));
  CHECK(choice.filter.empty());
  CHECK_FALSE(type(choice, "q"));
}

TEST_CASE("escape sequences are one key each, whatever the terminal, also in parts") {
  const JobView job = job_of(64, 8);
  TopChoice choice;
  const TopLook look{.size = {80, 24}};
  top_frame(job, {}, choice, look);
  type(choice, "f/in_job");
  const auto first_after = [&](std::string_view keys) {
    type(choice, keys);
    top_frame(job, {}, choice, look);
    return choice.first;
  };
  for (const char* end : {"\x1b[F", "\x1b[4~", "\x1b[8~", "\x1bOF", "\x1b[1;5F"}) {
    CHECK_MESSAGE(first_after(end) == 493, end);
    CHECK(first_after("\x1b[A") == 492);
    CHECK(first_after("\x1bOA") == 491);
    for (const char* home : {"\x1b[H", "\x1b[1~", "\x1b[7~", "\x1bOH"}) {
      CHECK_MESSAGE(first_after(home) == 0, home);
      first_after("\x1b[6~");
    }
  }
  CHECK((choice.is_filtering && choice.filter == "in_job"));
  for (const char* other : {"\x1bOP", "\x1b[15~", "\x1b[[A", "\x1b[15;2~",
                            "\x1b"
                            "f",
                            "\x1b[<0;1;1M"})
    CHECK(type(choice, other));
  CHECK_MESSAGE((choice.is_filtering && choice.filter == "in_job"), choice.filter);
  KeyReader reader;
  for (const char* part : {"\x1b", "[", "1", ";5"}) {
    CHECK(reader.take(part).empty());
    CHECK(reader.is_waiting());
  }
  const auto keys = reader.take("Bx");
  REQUIRE(keys.size() == 2);
  CHECK((keys[0].kind == Key::Kind::kDown && keys[1].character == 'x' && !reader.is_waiting()));
  type(choice, "\x1b");
  CHECK((!choice.is_filtering && choice.filter.empty()));
}

TEST_CASE("Enter folds as f does, and ends a filter") {
  const JobView job = job_of(2, 2);
  TopChoice choice;
  type(choice, "\r");
  CHECK((choice.is_folded && choice.has_chosen_fold));
  type(choice, "\n");
  CHECK_FALSE(choice.is_folded);
  type(choice, "/h1\r");
  CHECK((!choice.is_folded && !choice.is_filtering && choice.filter == "h1"));
}

TEST_CASE("colors show what needs attention, and change no width") {
  JobView job = job_of(3, 2);
  job.slowest = 1;
  job.late_seconds = 0.038;
  job.hosts[1].silence = 3;
  job.hosts[1].ranks[1].code = 0;
  job.hosts[2].state = "lost";
  job.hosts[0].ranks[0].is_stopped = true;
  TopChoice choice;
  const auto shown = [&](bool has_color) {
    return top_frame(job, {}, choice, {.size = {100, 24}, .has_color = has_color});
  };
  const std::string frame = shown(true);
  for (const char* part :
       {"\x1b[33mslowest rank 1 (h0) +38 ms\x1b[0m", "2 running", "\x1b[31m1 lost\x1b[0m",
        "\x1b[31mh1: no answer for 3 s\x1b[0m", "  0  h0    100  \x1b[31mstopped\x1b[0m ",
        "  \x1b[33m1\x1b[0m  h0    101  in_job ",
        "  2  \x1b[31mh1\x1b[0m    102  \x1b[31mno answer\x1b[0m ",
        "  5  \x1b[31mh2\x1b[0m    105  \x1b[31mlost\x1b[0m "})
    CHECK_MESSAGE(has_text(frame, part), frame);
  type(choice, "f");
  const std::string folded = shown(true);
  for (const char* part :
       {"\x1b[33mh0\x1b[0m        2  1 in_job, \x1b[31m1 stopped\x1b[0m ",
        "\x1b[31mh1\x1b[0m        2  \x1b[31m2 no answer\x1b[0m ", "\x1b[31mh2\x1b[0m  "})
    CHECK_MESSAGE(has_text(folded, part), folded);
  for (const char* keys : {"", "f", "h"}) {
    type(choice, keys);
    const auto colors = lines_in(shown(true));
    const auto plain = lines_in(shown(false));
    REQUIRE(colors.size() == plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      CHECK(plain[i].find('\x1b') == std::string::npos);
      CHECK(colored_width_of(colors[i]) == plain[i].size());
    }
  }
}

TEST_CASE("a notice stands before a command that is longer than the terminal is wide") {
  JobView job = job_of(1, 1);
  job.command = {"python3", std::string(300, 'x')};
  TopChoice choice;
  const auto lines =
      lines_in(top_frame(job, {}, choice, {.size = {40, 24}, .notice = "no answer for 12 s"}));
  CHECK(lines[0].starts_with("[no answer for 12 s] pid 7: python3 x"));
}

TEST_CASE("names of hosts and programs write nothing else to the terminal") {
  JobView job = job_of(1, 1);
  job.command = {"sh", "-c", "\x1b]0;x\a\n\n"};
  job.hosts[0].name = "a\x1b[2J\xff";
  job.hosts[0].silence = 3;
  job.hosts[0].ranks[0].waits_for = "\xc2\x9b\n";
  TopChoice choice;
  const std::string frame = top_frame(job, {}, choice, {.size = {80, 24}});
  CHECK(lines_in(frame).size() == 24);
  CHECK(has_text(frame, "no answer for 3 s"));
  for (const char each : frame) {
    const auto byte = static_cast<unsigned char>(each);
    CHECK((byte == '\n' || (byte >= 0x20 && byte < 0x7f) || byte > 0x9f));
  }
}

}  // namespace hvd::launcher
