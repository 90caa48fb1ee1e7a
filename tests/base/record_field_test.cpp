#include <doctest/doctest.h>

#include <cstddef>

#include "base/plugin_record.h"

using hvd::field_of;

TEST_CASE("a member that a shorter record lacks reads as 0, and one that it has as what it is") {
  struct Record {
    size_t struct_size;
    int number;
    int (*function)();
  };
  Record record{sizeof record, 7, [] { return 8; }};
  CHECK(field_of(record, &Record::number) == 7);
  CHECK(field_of(record, &Record::function)() == 8);
  record.struct_size = offsetof(Record, function) + sizeof record.function - 1;
  CHECK((field_of(record, &Record::function) == nullptr));
  CHECK(field_of(record, &Record::number) == 7);
  record.struct_size = offsetof(Record, number);
  CHECK(field_of(record, &Record::number) == 0);
}
