#include "base/bytes.h"

#include <doctest/doctest.h>

namespace hvd {

TEST_CASE("a ByteReader reads the bytes of a ByteWriter") {
  ByteWriter writer;
  writer.put<uint8_t>(7).put<int64_t>(-3).put_text("name").put(2.5);
  ByteReader reader(writer.view());
  CHECK(reader.get<uint8_t>() == 7);
  CHECK(reader.get<int64_t>() == -3);
  CHECK(reader.get_text() == "name");
  CHECK(reader.get<double>() == 2.5);
  CHECK(reader.finish("message").ok());
}

TEST_CASE("a reader that ran out stays failed, yields zeros and says what was cut") {
  ByteWriter writer;
  writer.put<uint32_t>(1000).put<uint8_t>(1);
  ByteReader reader(writer.view());
  CHECK(reader.get_blob().empty());
  CHECK(reader.get<uint64_t>() == 0);
  CHECK(reader.finish("plan").message() == "plan is cut short");
}

TEST_CASE("bytes after the end are an error") {
  ByteWriter writer;
  writer.put<uint16_t>(1);
  ByteReader reader(writer.view());
  reader.get<uint8_t>();
  CHECK(reader.finish("plan").message() == "plan has bytes after its end");
}

TEST_CASE("a count that the bytes cannot hold fails before anything is allocated") {
  ByteWriter writer;
  writer.put<uint32_t>(0xffffffff);
  ByteReader reader(writer.view());
  CHECK(reader.get_count(8) == 0);
  CHECK(reader.failed());
}

}  // namespace hvd
