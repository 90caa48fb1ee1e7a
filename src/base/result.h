// A value, or the Status of the failure: the part of std::expected that this project needs. Calling
// value() on an error is a defect and ends the process.
#pragma once

#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"

namespace hvd {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    HVD_CHECK(!std::get<1>(state_).ok());
  }

  bool ok() const { return state_.index() == 0; }
  bool has_value() const { return ok(); }
  explicit operator bool() const { return ok(); }

  T& value() & {
    HVD_CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    HVD_CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    HVD_CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T other) const& { return ok() ? value() : std::move(other); }

  // Returns ok if the result holds a value, else the error.
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  const Status& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace hvd
