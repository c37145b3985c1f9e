#include "transport/transport.hpp"

namespace troupe::transport {
namespace {

const char* name_of(TagKind kind) {
  switch (kind) {
    case TagKind::rows: return "rows";
    case TagKind::gradient: return "gradient";
    case TagKind::passing_rows: return "passing rows";
    case TagKind::passing_gradient: return "passing gradient";
    case TagKind::reduce: return "reduce";
    case TagKind::reduced: return "reduced";
    case TagKind::content: return "content";
    case TagKind::state: return "state";
    case TagKind::collective: return "collective";
    case TagKind::user: return "user";
  }
  return "unknown";
}

}  // namespace

std::string to_string(const Tag& tag) {
  return std::string(name_of(tag.kind)) + " epoch " + std::to_string(tag.epoch) + " step " +
         std::to_string(tag.step) + " index " + std::to_string(tag.index);
}

}  // namespace troupe::transport
