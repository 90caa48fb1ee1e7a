#include "launcher/protocol/host_signs.h"

#include <algorithm>

#include "launcher/protocol/value_list.h"

namespace hvd::launcher {
std::string encode(const std::vector<RankSigns>& signs) { return encode_list(signs); }
std::string encode(const std::vector<RankPlace>& places) { return encode_list(places); }

Result<std::vector<RankSigns>> decode_signs(std::string_view bytes) {
  return decode_list<RankSigns>(bytes, "the signs of ranks");
}

Result<std::vector<RankPlace>> decode_places(std::string_view bytes) {
  HVD_ASSIGN_OR_RETURN(auto places, decode_list<RankPlace>(bytes, "the signs of ranks"));
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
