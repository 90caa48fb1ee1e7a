#include "launcher/line_tagger.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "launcher/output.h"

namespace hvd::launcher {
namespace {

std::string tagged(std::initializer_list<std::string_view> pieces) {
  LineTagger tagger("#");
  std::string out;
  for (const std::string_view piece : pieces) tagger.feed(piece, out);
  tagger.finish(out);
  return out;
}

}  // namespace

TEST_CASE("each line gets its tag and keeps its end") {
  CHECK(tagged({"a\nb\n"}) == "#a\n#b\n");
  CHECK(tagged({"10%\r20%\r"}) == "#10%\r#20%\r");
  CHECK(tagged({"a\r\nb\n"}) == "#a\r\n#b\n");
  CHECK(tagged({"\n\n"}) == "#\n#\n");
}

TEST_CASE("a line that arrives in pieces is one line") {
  CHECK(tagged({"a", "b", "c\nd", "e"}) == "#abc\n#de\n");
}

TEST_CASE("a lone carriage return is shown at once") {
  LineTagger tagger("#");
  std::string out;
  tagger.feed("50%\r", out);
  CHECK(out == "#50%\r");
}

TEST_CASE("an unfinished last line gets a newline") { CHECK(tagged({"a\nb"}) == "#a\n#b\n"); }

TEST_CASE("any bytes survive") {
  using namespace std::string_literals;
  CHECK(tagged({"\0\xff\xfe\x80\n"s}) == "#\0\xff\xfe\x80\n"s);
}

TEST_CASE("a line beyond the bound is cut, and nothing of it is lost") {
  for (const size_t excess : {0, 1, 2, 3, 100}) {
    for (const size_t step : {size_t{1000}, kMaxLine, 3 * kMaxLine}) {
      const std::string line(2 * kMaxLine + excess, 'x');
      LineTagger tagger("#");
      std::string out;
      for (size_t i = 0; i < line.size(); i += step) {
        tagger.feed(std::string_view(line).substr(i, step), out);
        CHECK(tagger.held() <= kMaxLine);
      }
      tagger.feed("\n", out);
      tagger.finish(out);
      CHECK(static_cast<size_t>(std::count(out.begin(), out.end(), 'x')) == line.size());
      CHECK(std::count(out.begin(), out.end(), '#') == std::count(out.begin(), out.end(), '\n'));
    }
  }
}

TEST_CASE("tags and directories are as in the original") {
  CHECK(output_tag(3, OutputStream::kStdout) == "[3]<stdout>:");
  CHECK(output_tag(3, OutputStream::kStderr) == "[3]<stderr>:");
  CHECK(padded_rank(0, 1) == "0");
  CHECK(padded_rank(9, 10) == "9");
  CHECK(padded_rank(9, 11) == "09");
  CHECK(padded_rank(9, 101) == "009");
}

}  // namespace hvd::launcher
