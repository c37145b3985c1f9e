// What a user meant by a key that does not exist. Private to runtime/job.

#pragma once

#include <string>
#include <vector>

namespace troupe::job {

/// One sentence of help for the unknown key `key` of table `table` (both as written; `table` empty
/// at the top), whose known keys are `here`: the meaning of a name other tools use, the section a
/// key of this name belongs to, that there is nothing of the kind, or the nearest known key. Ends
/// with a list where nothing is near.
std::string help_for_unknown(const std::string& table, const std::string& key,
                             const std::vector<std::string>& here);

}  // namespace troupe::job
