#include "fuzz/target.h"
#include "rendezvous/wire/generation.h"

HVD_FUZZ_TARGET(generation) {
  using namespace hvd::rendezvous;
  static_cast<void>(decode_place_request(bytes));
  if (const auto news = decode_generation_news(bytes); news.ok()) {
    const auto again = decode_generation_news(encode(*news));
    HVD_CHECK(again.ok() && again->generation == news->generation && again->text == news->text);
  }
  if (const auto leave = decode_leave_news(bytes); leave.ok()) {
    const auto again = decode_leave_news(encode(*leave));
    HVD_CHECK(again.ok() && again->seconds == leave->seconds &&
              again->processes == leave->processes);
  }
  const auto answer = decode_place_answer(bytes);
  if (!answer.ok()) return;
  const auto again = decode_place_answer(encode(*answer));
  HVD_CHECK(again.ok() && again->place == answer->place);
}
