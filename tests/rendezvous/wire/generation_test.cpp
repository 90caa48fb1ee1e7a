#include "rendezvous/wire/generation.h"

#include <doctest/doctest.h>

namespace hvd::rendezvous {
namespace {

Result<PlaceAnswer> read(std::string_view text) { return decode_place_answer(as_bytes(text)); }

TEST_CASE("ranks follow the list, local and cross ranks the hosts") {
  Generation generation;
  generation.number = 7;
  generation.members = {{3, false, "b"}, {9, true, "b"}, {1, false, "host with blanks"}};
  const auto answers = answers_of(generation);
  REQUIRE(answers.size() == 3);
  CHECK(answers[2].place == Place{.rank = 2,
                                  .size = 3,
                                  .local_rank = 0,
                                  .local_size = 1,
                                  .cross_rank = 1,
                                  .cross_size = 2,
                                  .generation = 7});
  CHECK(answers[1].place.local_rank == 1);
  CHECK(answers[0].has_new_members);
  generation.members[1].is_new = false;
  CHECK_FALSE(answers_of(generation)[0].has_new_members);
}

TEST_CASE("an answer is read as it was written") {
  for (const bool is_provisional : {false, true}) {
    const PlaceAnswer answer{
        .place = {2, 3, 0, 1, 1, 2, 7}, .has_new_members = true, .is_provisional = is_provisional};
    const auto read = decode_place_answer(encode(answer));
    REQUIRE(read.ok());
    CHECK(read->place == answer.place);
    CHECK(read->has_new_members);
    CHECK(read->is_provisional == is_provisional);
    CHECK_FALSE(read->is_removed);
  }
  const auto removed = decode_place_answer(encode(PlaceAnswer{.is_removed = true}));
  REQUIRE(removed.ok());
  CHECK(removed->is_removed);
}

TEST_CASE("answers that cannot be right are refused") {
  const std::string first = "horovod place 2\n";
  CHECK(read(first + "0 0 1 0 1 0 1 0 0\n").ok());
  for (const char* rest :
       {"", "0 0 1 0 1 0 1 0 0", "\n", "0 0 1 0 1 0 1 0\n", "0 0 1 0 1 0 1 0 0 0\n",
        "x 0 1 0 1 0 1 0 0\n", "-1 0 1 0 1 0 1 0 0\n", "0 1 1 0 1 0 1 0 0\n", "0 0 0 0 1 0 1 0 0\n",
        "0 0 1 1 1 0 1 0 0\n", "0 0 1 0 2 0 1 0 0\n", "0 0 1 0 1 1 1 0 0\n", "0 0 1 0 1 0 2 0 0\n",
        "0 0 1 0 1 0 1 2 0\n", "0 0 1 0 1 0 1 0 3\n", "4294967296 0 1 0 1 0 1 0 0\n",
        "0 0 1 0 1 0 1 0 0\n\n"}) {
    CAPTURE(rest);
    CHECK_FALSE(read(first + rest).ok());
  }
  CHECK_FALSE(read("horovod place 3\n0 0 1 0 1 0 1 0 0\n").ok());
}

TEST_CASE("news name their generation") {
  const auto news = decode_generation_news(encode(GenerationNews{3, "host b is lost"}));
  REQUIRE(news.ok());
  CHECK(news->generation == 3);
  CHECK(news->text == "host b is lost");
  for (const char* text : {"", "3", "x 1", "-1 1", " 1"}) {
    CAPTURE(text);
    CHECK_FALSE(decode_generation_news(as_bytes(text)).ok());
  }
}

TEST_CASE("news of an agent that leaves have its time and its processes") {
  const auto news = decode_leave_news(encode(LeaveNews{30, {2, 3}}));
  REQUIRE(news.ok());
  CHECK(news->seconds == 30);
  CHECK(news->processes == std::vector<int32_t>{2, 3});
  for (const char* text : {"", "x", "-1 2", "30 ", "30 x", "30 -1"}) {
    CAPTURE(text);
    CHECK_FALSE(decode_leave_news(as_bytes(text)).ok());
  }
}

TEST_CASE("a request for a place says how often the process has committed, and where it asks") {
  for (const auto from :
       {PlaceRequestFrom::kInit, PlaceRequestFrom::kCollective, PlaceRequestFrom::kElasticRun}) {
    const auto request = decode_place_request(encode(PlaceRequest{.from = from}));
    REQUIRE(request.ok());
    CHECK(request->from == from);
  }
  for (const int32_t commits : {0, 1, 7, kUncountedCommits}) {
    const auto request = decode_place_request(
        encode(PlaceRequest{.number = 4, .generation = -1, .commits = commits}));
    REQUIRE(request.ok());
    CHECK(request->number == 4);
    CHECK(request->generation == -1);
    CHECK(request->commits == commits);
  }
  const auto older = decode_place_request(as_bytes("4 3"));
  REQUIRE(older.ok());
  CHECK(older->commits == kUncountedCommits);
  for (const char* text :
       {"", "1", "0 0", "1 -2", "1 0 -1", "1 0 0 3", "1 0 0 -1", "1 0 0 0 0", "a 0"}) {
    CAPTURE(text);
    CHECK_FALSE(decode_place_request(as_bytes(text)).ok());
  }
}

}  // namespace
}  // namespace hvd::rendezvous
