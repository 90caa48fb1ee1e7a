#include "launcher/protocol/host_signs.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/wire/value_bytes.h"

namespace hvd::launcher {
namespace {

template <typename T>
std::string encode_all(const std::vector<T>& values) {
  ByteWriter out;
  put(out, values);
  return std::string(as_text(out.view()));
}

template <typename T>
Result<std::vector<T>> decode_all(std::string_view bytes) {
  ByteReader in(as_bytes(bytes));
  std::vector<T> values;
  get(in, values);
  HVD_RETURN_IF_ERROR(in.finish("the signs of ranks"));
  return values;
}

}  // namespace

std::string encode(const std::vector<RankSigns>& signs) { return encode_all(signs); }
std::string encode(const std::vector<RankPlace>& places) { return encode_all(places); }

Result<std::vector<RankSigns>> decode_signs(std::string_view bytes) {
  return decode_all<RankSigns>(bytes);
}

Result<std::vector<RankPlace>> decode_places(std::string_view bytes) {
  HVD_ASSIGN_OR_RETURN(auto places, decode_all<RankPlace>(bytes));
  for (const RankPlace& place : places) {
    for (const std::string* text :
         {&place.library, &place.operation, &place.function, &place.line, &place.state}) {
      if (text->size() > kMostPlaceText)
        return invalid_argument("an agent describes the place of a rank by too long a text");
    }
  }
  return places;
}

}  // namespace hvd::launcher
