#include "launcher/pmix/conversation.h"

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kOrderTexts = 6;
constexpr int kRankLimit = 1 << 22;

std::optional<int> parse_rank(std::string_view text) {
  const auto rank = parse_int(text);
  if (!rank || *rank < 0 || *rank > 1 << 24) return std::nullopt;
  return static_cast<int>(*rank);
}

Status no_map(std::string_view text) {
  return invalid_argument(cat("'", printable(text), "' is not a list of ranks by host"));
}

}  // namespace

std::string pack_texts(const PmixTexts& texts) {
  std::string bytes;
  for (const std::string& text : texts) bytes.append(text).push_back('\0');
  bytes.push_back('\0');
  return bytes;
}

std::optional<PmixTexts> take_texts(std::string& bytes) {
  PmixTexts texts;
  for (size_t at = 0;;) {
    const size_t end = bytes.find('\0', at);
    if (end == std::string::npos) return std::nullopt;
    if (end == at) {
      bytes.erase(0, end + 1);
      return texts;
    }
    texts.push_back(bytes.substr(at, end - at));
    at = end + 1;
  }
}

std::string to_ranges(const std::vector<std::vector<int>>& ranks) {
  std::vector<std::string> hosts;
  hosts.reserve(ranks.size());
  for (const auto& of_host : ranks) {
    std::vector<std::string> ranges;
    for (size_t first = 0, end = 0; first < of_host.size(); first = end) {
      end = first + 1;
      while (end < of_host.size() && of_host[end] == of_host[end - 1] + 1) ++end;
      ranges.push_back(end - first == 1 ? cat(of_host[first])
                                        : cat(of_host[first], "-", of_host[end - 1]));
    }
    hosts.push_back(hvd::join(ranges, ","));
  }
  return hvd::join(hosts, ";");
}

std::string to_map(const std::vector<std::vector<int>>& ranks) {
  std::vector<std::string> hosts;
  hosts.reserve(ranks.size());
  for (const auto& of_host : ranks) {
    std::vector<std::string> numbers;
    numbers.reserve(of_host.size());
    for (const int rank : of_host) numbers.push_back(cat(rank));
    hosts.push_back(hvd::join(numbers, ","));
  }
  return hvd::join(hosts, ";");
}

Result<std::vector<std::vector<int>>> parse_map(std::string_view text) {
  std::vector<std::vector<int>> ranks;
  int count = 0;
  for (const std::string& of_host : split(text, ';')) {
    ranks.emplace_back();
    for (const std::string& range : split(of_host, ',')) {
      const size_t dash = range.find('-');
      const auto first = parse_rank(range.substr(0, dash));
      const auto last = dash == std::string::npos ? first : parse_rank(range.substr(dash + 1));
      if (!first || !last || *last < *first || *last - *first >= kRankLimit - count) {
        return no_map(text);
      }
      count += *last - *first + 1;
      for (int rank = *first; rank <= *last; ++rank) ranks.back().push_back(rank);
    }
  }
  return ranks;
}

size_t PmixOrder::size() const {
  size_t size = 0;
  for (const auto& of_host : ranks) size += of_host.size();
  return size;
}

PmixTexts to_texts(const PmixOrder& order) {
  return {order.job,           cat(order.host), hvd::join(order.names, ","),
          to_map(order.ranks), order.store,     order.secret};
}

Result<PmixOrder> parse_pmix_order(const PmixTexts& texts) {
  if (texts.size() != kOrderTexts) return invalid_argument("an order has six texts");
  PmixOrder order;
  order.job = texts[0];
  order.names = split(texts[2], ',');
  HVD_ASSIGN_OR_RETURN(order.ranks, parse_map(texts[3]));
  const auto host = parse_int(texts[1]);
  if (!host || *host < 0 || static_cast<size_t>(*host) >= order.ranks.size() ||
      order.names.size() != order.ranks.size()) {
    return invalid_argument(cat("'", printable(texts[1]), "' is not a host of this order"));
  }
  order.host = static_cast<size_t>(*host);
  order.store = texts[4];
  order.secret = texts[5];
  return order;
}

}  // namespace hvd::launcher
