#include "launcher/output/line_folder.h"

#include <doctest/doctest.h>

#include <random>

#include "base/text.h"

namespace hvd::launcher {
namespace {

const Clock::time_point kStart{};

std::string shown(LineFolder& folder, Clock::time_point now, bool all = false) {
  std::string text;
  FoldedLine line;
  while (folder.take(now, all, line)) text += cat(ranks_text(line.ranks), ":", line.line);
  return text;
}

}  // namespace

TEST_CASE("ranks are shown as ranges") {
  CHECK(ranks_text({0, 1, 2, 3, 5}) == "0-3,5");
  CHECK(ranks_text({7}) == "7");
  CHECK(ranks_text({1, 3, 4}) == "1,3-4");
}

TEST_CASE("a line of all ranks is shown at once, a line of some ranks after a moment") {
  LineFolder folder(3);
  for (const int rank : {2, 0, 1}) folder.add(rank, "epoch 1\n", kStart);
  folder.add(1, "mine\n", kStart);
  folder.add(2, "epoch 2\n", kStart);
  folder.add(0, "epoch 2\n", kStart);
  CHECK(shown(folder, kStart) == "0-2:epoch 1\n");
  CHECK(shown(folder, kStart + kFoldFor) == "1:mine\n0,2:epoch 2\n");
  CHECK(folder.is_empty());
}

TEST_CASE("a line that a rank prints twice is shown twice") {
  LineFolder folder(2);
  for (const int rank : {0, 0, 1, 1}) folder.add(rank, "x\n", kStart);
  CHECK(shown(folder, kStart, true) == "0:x\n0-1:x\n1:x\n");
}

TEST_CASE("bytes count as shown with the last line of their rank") {
  LineFolder folder(2);
  folder.add(0, "a\n", kStart);
  folder.add(0, "b\n", kStart);
  CHECK(folder.consume(0, 4));
  FoldedLine line;
  REQUIRE(folder.take(kStart, true, line));
  CHECK(line.consumed.empty());
  REQUIRE(folder.take(kStart, true, line));
  CHECK(line.consumed == std::vector<std::pair<int, size_t>>{{0, 4}});
  CHECK_FALSE(folder.consume(0, 1));
}

TEST_CASE("much is not held") {
  LineFolder folder(2);
  const std::string line(kMaxFolded / 4, 'x');
  for (int i = 0; i < 100; ++i) {
    folder.add(0, cat(i, line), kStart);
    shown(folder, kStart);
  }
  FoldedLine left;
  int count = 0;
  while (folder.take(kStart, true, left)) ++count;
  CHECK(count <= 4);
}

TEST_CASE("an end of line that was cut between its two bytes is one") {
  LineFolder folder(2);
  folder.add(0, "x\r\n", kStart);
  folder.add(1, "x\r", kStart);
  CHECK(folder.consume(1, 2));
  folder.add(1, "\n", kStart);
  CHECK(shown(folder, kStart) == "0-1:x\r\n");
  CHECK(folder.is_empty());
}

TEST_CASE("a progress bar's line waits for a moment, and for the same of others") {
  LineFolder folder(3);
  for (const int rank : {0, 1}) folder.add(rank, "10%\r", kStart);
  CHECK_FALSE(folder.is_empty());
  folder.add(2, "10%\r", kStart + kFoldFor / 2);
  CHECK(shown(folder, kStart + kFoldFor / 2) == "");
  CHECK(shown(folder, kStart + kFoldFor) == "0-2:10%\r");
  CHECK(folder.is_empty());
  // The end of the progress bar is in the next line.
  folder.add(0, "20%\r", kStart);
  folder.add(0, "done\n", kStart);
  CHECK(shown(folder, kStart, true) == "0:20%\r0:done\n");
  // Adds an empty line, long after the progress bar.
  folder.add(0, "30%\r", kStart);
  CHECK(shown(folder, kStart + kFoldFor) == "0:30%\r");
  folder.add(0, "\n", kStart + kFoldFor);
  CHECK(shown(folder, kStart, true) == "0:\n");
}

TEST_CASE("bytes of a cut line count as shown with it") {
  LineFolder folder(2);
  folder.add(0, "a\n", kStart);
  folder.add(0, "b\r", kStart);
  CHECK(folder.consume(0, 4));
  FoldedLine line;
  REQUIRE(folder.take(kStart, true, line));
  CHECK(line.consumed.empty());
  REQUIRE(folder.take(kStart, true, line));
  CHECK(line.line == "b\r");
  CHECK(line.consumed == std::vector<std::pair<int, size_t>>{{0, 4}});
}

TEST_CASE("the lines of every rank come in their order and none is lost") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    constexpr int kRanks = 4;
    LineFolder folder(kRanks);
    std::vector<std::string> said(kRanks), got(kRanks);
    FoldedLine line;
    const auto take = [&](bool all) {
      while (folder.take(kStart, all, line)) {
        for (const int rank : line.ranks) got[static_cast<size_t>(rank)] += line.line;
      }
    };
    for (int i = 0; i < 60; ++i) {
      const auto rank = static_cast<size_t>(random() % kRanks);
      constexpr const char* kEnds[] = {"\n", "\r\n", "\r"};
      const std::string text = cat(random() % 4, kEnds[random() % 3]);
      said[rank] += text;
      folder.add(static_cast<int>(rank), text, kStart);
      if (random() % 8 == 0) take(random() % 2 == 0);
    }
    take(true);
    CHECK(got == said);
  }
}

}  // namespace hvd::launcher
