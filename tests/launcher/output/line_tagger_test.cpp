#include "launcher/output/line_tagger.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/log/log.h"
#include "base/text.h"
#include "launcher/hosts/host_table.h"
#include "launcher/output/output.h"

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

TEST_CASE("a tag's words are known ones, and other braces stay as they are") {
  for (const std::string_view tag : {"", "none", "{host}/{rank}", "{local_rank}{stream}", "{}",
                                     "{ x }", "{Rank", "}{", "{{rank}"}) {
    CHECK_MESSAGE(check_tag(tag).ok(), tag);
  }
  CHECK(check_tag("{host}/{node}").message() ==
        "--tag knows no {node}; there are {rank}, {host}, {local_rank}, {stream} and {time}");
}

TEST_CASE("a line that arrives in pieces is one line") {
  CHECK(tagged({"a", "b", "c\nd", "e"}) == "#abc\n#de\n");
}

TEST_CASE("an end of line that is cut in two ends one line") {
  CHECK(tagged({"a\r", "\nb\r", "\n", "\n", "c\r", "d\n"}) == "#a\r\n#b\r\n#\n#c\r#d\n");
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
        CHECK(tagger.held().size() <= kMaxLine);
      }
      tagger.feed("\n", out);
      tagger.finish(out);
      CHECK(static_cast<size_t>(std::count(out.begin(), out.end(), 'x')) == line.size());
      CHECK(std::count(out.begin(), out.end(), '#') == std::count(out.begin(), out.end(), '\n'));
    }
  }
}

TEST_CASE("the pieces of a line beyond the bound are marked, and no character is cut") {
  const std::string line(kMaxLine - 1, 'x');
  for (const size_t step : {size_t{1}, size_t{2}, 2 * kMaxLine}) {
    LineTagger text("#");
    LineTagger object("{", LineFormat::kJson);
    std::string lines, objects;
    const std::string bytes = "\u20acy\n";
    text.feed(line, lines);
    object.feed(line, objects);
    for (size_t i = 0; i < bytes.size(); i += step) {
      text.feed(std::string_view(bytes).substr(i, step), lines);
      object.feed(std::string_view(bytes).substr(i, step), objects);
    }
    CHECK(lines == cat("#", line, " [continues]\n#[continued] \u20acy\n"));
    CHECK(objects == cat("{\"text\":\"", line, "\",\"continues\":true}\n{\"text\":\"\u20acy\"}\n"));
  }
}

TEST_CASE("a line of just the bound is one") {
  const std::string line(kMaxLine, 'x');
  CHECK(tagged({line, "\n"}) == cat("#", line, "\n"));
  CHECK(tagged({line}) == cat("#", line, "\n"));
}

TEST_CASE("tags and directories are as in the original") {
  const HostTable hosts(*plan_slots({{"a", "", 4}}, {}));
  CHECK(line_tag(hosts, {3}, OutputStream::kStdout, {}) == "[3]<stdout>:");
  CHECK(line_tag(hosts, {3}, OutputStream::kStderr, {}) == "[3]<stderr>:");
  CHECK(padded_rank(0, 1) == "0");
  CHECK(padded_rank(9, 10) == "9");
  CHECK(padded_rank(9, 11) == "09");
  CHECK(padded_rank(9, 101) == "009");
}

TEST_CASE("each line is an object whose end and bytes can be had back") {
  const auto objects = [](std::string_view bytes) {
    LineTagger tagger("{\"rank\":1,", LineFormat::kJson);
    std::string out;
    tagger.feed(bytes.substr(0, 2), out);
    tagger.feed(bytes.substr(2), out);
    tagger.finish(out);
    return out;
  };
  CHECK(objects("a\"b\\\x01\n") == "{\"rank\":1,\"text\":\"a\\\"b\\\\\\u0001\"}\n");
  CHECK(objects("50%\r") == "{\"rank\":1,\"text\":\"50%\",\"end\":\"\\r\"}\n");
  CHECK(objects("ab\r\nb") == "{\"rank\":1,\"text\":\"ab\"}\n{\"rank\":1,\"text\":\"b\"}\n");
  CHECK(objects("\xff\xfe\n") == "{\"rank\":1,\"base64\":\"//4=\"}\n");
}

TEST_CASE("a tag is the user's, with what it names filled in") {
  const HostTable hosts(*plan_slots({{"a", "", 1}, {"b", "", 2}}, {}));
  OutputStyle style;
  CHECK(line_tag(hosts, {2}, OutputStream::kStderr, style) == "[2]<stderr>:");
  style.tag = "{host}/{rank}/{local_rank}/{stream}/{host}{x}";
  CHECK(line_tag(hosts, {2}, OutputStream::kStdout, style) == "b/2/1/stdout/b{x}: ");
  CHECK(line_tag(hosts, {1, 2}, OutputStream::kStdout, style) == "b/1-2/*/stdout/b{x}: ");
  CHECK(line_tag(hosts, {0, 2}, OutputStream::kStdout, style) == "*/0,2/*/stdout/*{x}: ");
  style.tag = "none";
  CHECK(line_tag(hosts, {2}, OutputStream::kStdout, style).empty());
  style.format = LineFormat::kJson;
  CHECK(line_tag(hosts, {2}, OutputStream::kStdout, style) ==
        ",\"rank\":2,\"host\":\"b\",\"stream\":\"stdout\",");
}

TEST_CASE("a log gets lines without the colors of their tags") {
  CHECK(without_tag_colors("\x1b[36m[0]: \x1b[0m50%\r\n\x1b[36m[0]: \x1b[0m\x1b[31mred\x1b[0m\n") ==
        "[0]: 50%\r\n[0]: \x1b[31mred\x1b[0m\n");
  CHECK(without_tag_colors("Fri \x1b[33m[1]: \x1b[0mhalf") == "Fri [1]: half");
  CHECK(without_tag_colors("\n").size() == 1);
  CHECK(without_tag_colors("").empty());
}

}  // namespace hvd::launcher
