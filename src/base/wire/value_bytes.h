// Encodes (put) and decodes (get) the values of messages: numbers, texts, lists, pairs, and structs. A struct is sent
// member by member, in order. A struct that sends only some of its members lists them in fields(). Pure.
#pragma once

#include <algorithm>
#include <array>
#include <boost/pfr.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace hvd {

template <typename T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <typename T>
concept ListsFields = requires(T& value) {
  T::fields(value);
};
// True for arrays and pairs.
template <typename T>
concept HasTupleSize = requires {
  std::tuple_size<T>::value;
};
template <typename T>
concept HasFields = (std::is_aggregate_v<T> && !HasTupleSize<T>) || ListsFields<T>;
template <HasFields T>
auto fields_of(T& value) {
  if constexpr (ListsFields<std::remove_const_t<T>>) {
    return std::remove_const_t<T>::fields(value);
  } else {
    return boost::pfr::structure_tie(value);
  }
}

void put(ByteWriter& to, const std::string& text);
void put(ByteWriter& to, const Status& status);
void put(ByteWriter& to, const std::optional<uint32_t>& number);
void put(ByteWriter& to, Number auto number) { to.put(number); }
void put(ByteWriter& to, const HasFields auto& value);
template <size_t N>
void put(ByteWriter& to, const std::array<std::byte, N>& bytes) {
  to.put_raw(bytes);
}
template <typename A, typename B>
void put(ByteWriter& to, const std::pair<A, B>& values);
template <typename T>
void put(ByteWriter& to, const std::vector<T>& values);

// Any bytes are accepted as values. Only the reader's finish() reports a message that is cut short or too long.
void get(ByteReader& from, std::string& text);
void get(ByteReader& from, Status& status);
void get(ByteReader& from, std::optional<uint32_t>& number);
void get(ByteReader& from, bool& value);
template <Number T>
void get(ByteReader& from, T& number) {
  number = from.get<T>();
}
void get(ByteReader& from, HasFields auto& value);
template <size_t N>
void get(ByteReader& from, std::array<std::byte, N>& bytes) {
  std::ranges::copy(from.get_raw(N), bytes.begin());
}
template <typename A, typename B>
void get(ByteReader& from, std::pair<A, B>& values);
template <typename T>
void get(ByteReader& from, std::vector<T>& values);

// Not inlined: otherwise g++ 12 wrongly warns of an overflow of an empty writer's memory.
[[gnu::noinline]] void put(ByteWriter& to, const HasFields auto& value) {
  std::apply([&](const auto&... field) { (put(to, field), ...); }, fields_of(value));
}
void get(ByteReader& from, HasFields auto& value) {
  std::apply([&](auto&... field) { (get(from, field), ...); }, fields_of(value));
}

template <typename A, typename B>
void put(ByteWriter& to, const std::pair<A, B>& values) {
  put(to, values.first);
  put(to, values.second);
}
template <typename A, typename B>
void get(ByteReader& from, std::pair<A, B>& values) {
  get(from, values.first);
  get(from, values.second);
}

// Returns a lower bound of the size of an encoded value, in bytes. For a text or a list, this is the size of its length
// field.
template <typename T>
constexpr size_t least_size() {
  if constexpr (Number<T>) {
    return sizeof(T);
  } else if constexpr (HasFields<T>) {
    return []<typename... F>(std::type_identity<std::tuple<F&...>>) {
      return (size_t{0} + ... + least_size<F>());
    }(std::type_identity<decltype(fields_of(std::declval<T&>()))>());
  } else {
    return sizeof(uint32_t);
  }
}

template <typename T>
void put(ByteWriter& to, const std::vector<T>& values) {
  to.put(static_cast<uint32_t>(values.size()));
  for (const T& value : values) put(to, value);
}
template <typename T>
void get(ByteReader& from, std::vector<T>& values) {
  const uint32_t count = from.get_count(least_size<T>());
  values.clear();
  for (uint32_t i = 0; i < count && !from.failed(); ++i) {
    T value{};
    get(from, value);
    values.push_back(std::move(value));
  }
}

}  // namespace hvd
