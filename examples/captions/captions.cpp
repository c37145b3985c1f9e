// A format of sample lists: a line per picture, its path and its caption with a tab between, as
// many lists of pictures and texts are.

#include <algorithm>

#include "runtime/data/formats/registry.hpp"
#include "runtime/plugins/entry_point.hpp"

namespace {

using namespace troupe;
using namespace troupe::data;

Result<std::vector<Record>> read_lines(std::string_view text, const std::string& file) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // A mark that says it is UTF-8.
  std::vector<Record> records;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (line.empty()) continue;
    Record& record = records.emplace_back();
    record.where = file + ":" + std::to_string(number);
    const auto tab = line.find('\t');
    if (tab == std::string_view::npos) {
      record.defect = "there is no tab between picture and caption";  // Left out, and counted.
      continue;
    }
    record.images = {std::string(line.substr(0, tab))};
    record.turns = {{Role::user, "<image>\nWhat is this?"},
                    {Role::assistant, std::string(line.substr(tab + 1))}};
  }
  return records;
}

Status register_all() { return register_format({"captions", read_lines}); }

}  // namespace

TROUPE_PLUGIN(register_all)
