#include "collectives/algorithms/schedule.h"

#include <algorithm>
#include <bit>

#include "base/plugin_record.h"

namespace hvd::collectives {
namespace {

// Sets a limit: 0 keeps the default, and a negative value sets `never`, which is never reached.
void take(size_t& limit, int64_t value, size_t never) {
  if (value != 0) limit = value < 0 ? never : static_cast<size_t>(value);
}

class ScheduleBuilder {
 public:
  ScheduleBuilder(size_t hosts, size_t host, size_t count, size_t element)
      : hosts_(hosts), host_(host), count_(count), element_(element) {}

  Schedule one_shot() {
    add_hops(1);
    for (size_t other = 0; other < hosts_; ++other) {
      if (other == host_) continue;
      send(0, other, all());
      receive(0, other, all());
    }
    schedule_.overwrites = true;
    return finish(1, all());
  }

  // If the number of hosts is not a power of two, each surplus host sends its data to a neighbour, which takes part
  // for both and returns the result.
  Schedule recursive_doubling() {
    const size_t half = std::bit_floor(hosts_);
    const size_t silent = hosts_ - half;
    const size_t rounds = static_cast<size_t>(std::countr_zero(half));
    add_hops(1 + rounds + 1);
    schedule_.overwrites = schedule_.partial = true;
    if (host_ < 2 * silent && host_ % 2 == 1) {
      send(0, host_ - 1, all());
      receive(1 + rounds, host_ - 1, all());
      return finish(1 + rounds, {0, 0});
    }
    const auto speaker = [&](size_t place) { return place < silent ? 2 * place : place + silent; };
    const size_t place = host_ < 2 * silent ? host_ / 2 : host_ - silent;
    if (place < silent) {
      receive(0, host_ + 1, all());
      send(1 + rounds, host_ + 1, all());
    }
    for (size_t round = 0; round < rounds; ++round) {
      const size_t other = speaker(place ^ (size_t{1} << round));
      send(1 + round, other, all());
      receive(1 + round, other, all());
    }
    return finish(1 + rounds, all());
  }

  Schedule two_shot() {
    add_hops(2);
    for (size_t other = 0; other < hosts_; ++other) {
      if (other == host_) continue;
      send(0, other, slice(other));
      receive(0, other, slice(host_));
      send(1, other, slice(host_));
      receive(1, other, slice(other));
    }
    return finish(1, slice(host_));
  }

  // Divides the hosts into two parts, which exchange slices, and then divides each part likewise. If one part has
  // one host more, its last host sends data to the last host of the other part, and receives only results.
  Schedule halving_doubling() {
    const auto levels = static_cast<size_t>(std::bit_width(hosts_ - 1));
    add_hops(2 * levels);
    schedule_.partial = true;
    size_t first = 0;
    size_t count = hosts_;
    for (size_t level = 0; level < levels && count > 1; ++level) {
      const size_t lower = (count + 1) / 2;
      const size_t upper = count - lower;
      const bool is_lower = host_ < first + lower;
      const Slice lowers = slices(first, lower);
      const Slice uppers = slices(first + lower, upper);
      const size_t back = 2 * levels - 1 - level;
      if (is_lower) {
        const size_t index = host_ - first;
        const size_t other = first + lower + std::min(index, upper - 1);
        send(level, other, uppers);
        receive(back, other, uppers);
        if (index < upper) {
          receive(level, other, lowers);
          send(back, other, lowers);
        }
      } else {
        const size_t index = host_ - first - lower;
        const size_t other = first + index;
        send(level, other, lowers);
        receive(back, other, lowers);
        receive(level, other, uppers);
        send(back, other, uppers);
        if (index == upper - 1 && lower > upper) {
          receive(level, other + 1, uppers);
          send(back, other + 1, uppers);
        }
      }
      first += is_lower ? 0 : lower;
      count = is_lower ? lower : upper;
    }
    return finish(levels, slice(host_));
  }

  Schedule ring() {
    add_hops(2 * (hosts_ - 1));
    schedule_.partial = true;
    const size_t next = (host_ + 1) % hosts_;
    const size_t before = (host_ + hosts_ - 1) % hosts_;
    for (size_t hop = 0; hop < 2 * (hosts_ - 1); ++hop) {
      // This host receives its own slice in the last hop that reduces.
      const size_t sent = (host_ + 2 * hosts_ - 1 - hop) % hosts_;
      send(hop, next, slice(sent));
      receive(hop, before, slice((sent + hosts_ - 1) % hosts_));
    }
    return finish(hosts_ - 1, slice(host_));
  }

 private:
  Slice all() const { return {0, count_}; }
  Slice slice(size_t host) const { return slice_of(count_, hosts_, host, element_); }
  Slice slices(size_t host, size_t count) const {
    const Slice last = slice(host + count - 1);
    const size_t first = slice(host).first;
    return {first, last.first + last.count - first};
  }
  void add_hops(size_t count) { schedule_.hops.resize(count); }
  void send(size_t hop, size_t host, Slice part) {
    if (part.count > 0) schedule_.hops[hop].sends.push_back({host, part});
  }
  void receive(size_t hop, size_t host, Slice part) {
    if (part.count > 0) schedule_.hops[hop].receives.push_back({host, part});
  }
  Schedule finish(size_t reducing, Slice own) {
    schedule_.reducing = reducing;
    schedule_.own = own;
    for (size_t hop = 0; hop < reducing; ++hop) {
      auto& transfers = schedule_.hops[hop].receives;
      std::sort(transfers.begin(), transfers.end(),
                [](const Transfer& a, const Transfer& b) { return a.host < b.host; });
      size_t elements = 0;
      for (const Transfer& transfer : transfers) elements += transfer.part.count;
      if (elements > 0 && own.count > 0) schedule_.last_reducing = hop;
      schedule_.scratch = std::max(schedule_.scratch, elements);
    }
    return std::move(schedule_);
  }

  const size_t hosts_, host_, count_, element_;
  Schedule schedule_;
};

}  // namespace

Tuning tuning_of(const hvd_batch& batch) {
  Tuning tuning;
  const hvd_tuning* const given = field_of(batch, &hvd_batch::tuning);
  if (given == nullptr || given->struct_size < sizeof(hvd_tuning)) return tuning;
  const hvd_tuning& own = *given;
  take(tuning.one_shot_limit, own.whole_limit, 0);
  take(tuning.one_shot_limit_of_two, own.whole_limit, 0);
  take(tuning.recursive_doubling_limit, own.doubling_limit, 0);
  take(tuning.ring_from, own.ring_from, std::numeric_limits<size_t>::max());
  if (own.chunk > 0) {
    tuning.chunk = tuning.one_shot_chunk = std::max<size_t>(static_cast<size_t>(own.chunk), 4096);
  }
  if (own.direct_hosts != 0) tuning.two_shot_hosts = own.direct_hosts;
  if (own.streams > 0) tuning.streams = std::min(own.streams, kMostStreams);
  if (own.drivers > 0) tuning.drivers = own.drivers;
  return tuning;
}

Algorithm choose_algorithm(const Tuning& tuning, size_t hosts, size_t bytes) {
  const bool few = hosts <= static_cast<size_t>(std::max(tuning.two_shot_hosts, 1));
  const size_t one_shot = hosts == 2 ? tuning.one_shot_limit_of_two : tuning.one_shot_limit;
  if (few && bytes * (hosts - 1) <= one_shot) return Algorithm::kOneShot;
  if (bytes <= tuning.recursive_doubling_limit) return Algorithm::kRecursiveDoubling;
  if (few) return Algorithm::kTwoShot;
  return bytes < tuning.ring_from ? Algorithm::kHalvingDoubling : Algorithm::kRing;
}

bool sends_partial_sums(Algorithm algorithm) {
  return algorithm != Algorithm::kOneShot && algorithm != Algorithm::kTwoShot;
}

Schedule make_schedule(Algorithm algorithm, size_t hosts, size_t host, size_t count,
                       size_t element) {
  ScheduleBuilder builder(hosts, host, count, element);
  switch (algorithm) {
    case Algorithm::kOneShot:
      return builder.one_shot();
    case Algorithm::kRecursiveDoubling:
      return builder.recursive_doubling();
    case Algorithm::kTwoShot:
      return builder.two_shot();
    case Algorithm::kHalvingDoubling:
      return builder.halving_doubling();
    case Algorithm::kRing:
      return builder.ring();
  }
  return {};
}

}  // namespace hvd::collectives
