// Job files for the tests of runtime/job, in a folder that goes away.

#pragma once

#include <unistd.h>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/job/load_job.hpp"

/// A folder with an empty `samples.json`, also in its folder `base`; removed at the end.
class JobFolder {
 public:
  JobFolder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("troupe-job-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    write("samples.json", "[]");
    write("base/samples.json", "[]");
  }
  ~JobFolder() { std::filesystem::remove_all(path_); }
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Writes a file below the folder and returns its path.
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// All problems as a user reads them; empty where there are none.
inline std::string shown(const troupe::job::JobReading& reading) {
  std::string text;
  for (const auto& problem : reading.problems) text += to_string(problem) + "\n";
  return text;
}

/// A vision-language model; the order of its modules is not theirs in the graph.
inline const std::string kSmallJob = R"([job]
name = "small"

[modules.llm]
kind = "llm"

[modules.vision_projector]
kind = "projector"

[modules.vision]
kind = "encoder"
family = "qwen2-vl"

[[data.sources]]
json = "samples.json"

[train]
steps = 20
)";

/// The same with one copy of the encoder and two of the llm.
inline const std::string kReplicasJob = kSmallJob + R"(
[cluster]
local_nodes = 2

[[parallel.replicas]]
modules = ["vision"]
stages = [{node = 0, vision = "all"}]

[[parallel.replicas]]
modules = ["llm"]
stages = [{node = 0, llm = [0, 3]}, {node = 1, llm = [3, 6]}]

[[parallel.replicas]]
modules = ["llm"]
stages = [{node = 1, llm = "all"}]
)";

/// The same on two pipelines by hand. Vision and llm have 4 + 2 layers each.
inline const std::string kLayoutJob = kSmallJob + R"(
[cluster]
local_nodes = 2

[parallel]
mode = "manual"

[parallel.llm]
tp = 1

[[parallel.pipelines]]
stages = [{node = 0, vision = [0, 4]}, {node = 1, vision = [4, 6], llm = "all"}]

[[parallel.pipelines]]
stages = [{node = 0, vision = "all", llm = [0, 3]}, {node = 1, device = 0, llm = [3, 6]}]
)";
