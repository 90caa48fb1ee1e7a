// Encodes (put) and decodes (get) the values of control messages: numbers, texts, lists, pairs, and structs that
// name their fields by fields(). Only protocol.cpp calls it. Pure.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "launcher/protocol/token_proof.h"

namespace hvd::launcher {

template <typename T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <typename T>
concept HasFields = requires(T& value) {
  T::fields(value);
};

void put(ByteWriter& to, const std::string& text);
void put(ByteWriter& to, const Proof& proof);
void put(ByteWriter& to, const Status& status);
void put(ByteWriter& to, const std::optional<uint32_t>& number);
void put(ByteWriter& to, Number auto number) { to.put(number); }
void put(ByteWriter& to, const HasFields auto& value);
template <typename A, typename B>
void put(ByteWriter& to, const std::pair<A, B>& values);
template <typename T>
void put(ByteWriter& to, const std::vector<T>& values);

// The reader's finish() reports truncated or wrong values.
void get(ByteReader& from, std::string& text);
void get(ByteReader& from, Proof& proof);
void get(ByteReader& from, Status& status);
void get(ByteReader& from, std::optional<uint32_t>& number);
void get(ByteReader& from, bool& value);
template <Number T>
void get(ByteReader& from, T& number) {
  number = from.get<T>();
}
void get(ByteReader& from, HasFields auto& value);
template <typename A, typename B>
void get(ByteReader& from, std::pair<A, B>& values);
template <typename T>
void get(ByteReader& from, std::vector<T>& values);

void put(ByteWriter& to, const HasFields auto& value) {
  std::apply([&](const auto&... field) { (put(to, field), ...); },
             std::remove_cvref_t<decltype(value)>::fields(value));
}
void get(ByteReader& from, HasFields auto& value) {
  std::apply([&](auto&... field) { (get(from, field), ...); },
             std::remove_cvref_t<decltype(value)>::fields(value));
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

template <typename T>
void put(ByteWriter& to, const std::vector<T>& values) {
  to.put(static_cast<uint32_t>(values.size()));
  for (const T& value : values) put(to, value);
}
template <typename T>
void get(ByteReader& from, std::vector<T>& values) {
  // The shortest value of a list, an empty text, takes four bytes.
  const uint32_t count = from.get_count(4);
  for (uint32_t i = 0; i < count && !from.failed(); ++i) {
    T value;
    get(from, value);
    values.push_back(std::move(value));
  }
}

}  // namespace hvd::launcher
