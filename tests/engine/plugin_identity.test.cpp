#include "tests/torch_catch.hpp"

#include "engine/setup/plugin_identity.hpp"

#include <algorithm>
#include <filesystem>

#include "runtime/files/read_stream.hpp"
#include "runtime/plugins/load_plugin.hpp"
#include "runtime/state/tensor_hash.hpp"
#include "tests/runtime/data/temp_folder.hpp"

namespace troupe::engine {
namespace {

using Plugins = std::vector<PluginIdentity>;

TEST_CASE("a process tells of each plug-in what its file held when it was loaded", "[engine]") {
  const data::TempFolder folder;
  const std::filesystem::path library = TROUPE_APART;
  const auto copy = folder.path() / "copy.so";
  std::filesystem::copy_file(library, copy);
  REQUIRE(plugins::load_plugin(library).ok());
  REQUIRE(plugins::load_plugin(copy).ok());  // Found loaded already.
  folder.write("copy.so", "another build, which nobody has loaded");
  const std::string content = files::read_whole(library).value();
  const PluginIdentity apart{library.filename().string(),
                             state::hash_bytes(std::as_bytes(std::span(content)))};
  CHECK(std::ranges::count(identify_plugins(), apart) == 1);
  CHECK(std::ranges::count(identify_plugins(), std::string("copy.so"), &PluginIdentity::name) == 0);
}

TEST_CASE("a plug-in named without a folder is the file that lies here", "[engine][errors]") {
  const data::TempFolder folder;
  folder.write("near.so", "no library");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto loaded = plugins::load_plugin("near.so");
  std::filesystem::current_path(before);
  REQUIRE_FALSE(loaded.ok());
  INFO(loaded.error().message);
  CHECK(loaded.error().code == Errc::invalid_argument);
  // It was opened, and is no library.
  CHECK(loaded.error().message.starts_with("near.so cannot be loaded: ./near.so: "));
}

TEST_CASE("the same builds are the same plug-ins whatever their files are called", "[engine]") {
  const Plugins here{{"a.so", 1}, {"b.so", 2}};
  CHECK(same_plugins(here, here, "node 1").ok());
  CHECK(same_plugins(here, Plugins{{"b.so", 1}, {"c.so", 2}}, "node 1").ok());
  CHECK(same_plugins(here, Plugins{{"b.so", 2}}, "node 1").ok());  // It needs no other one.
  CHECK(same_plugins({}, {}, "node 1").ok());
}

TEST_CASE("a plug-in that the head has not loaded is named", "[engine][errors]") {
  const Plugins here{{"a.so", 1}, {"b.so", 0x0000'00ab'0000'0000}};
  const auto other = same_plugins(here, Plugins{{"a.so", 1}, {"b.so", 0xffff'ffff'0000'0001}},
                                  "node 1 (host, pid 7)");
  REQUIRE_FALSE(other.ok());
  CHECK(other.error() ==
        Error{Errc::invalid_argument,
              "node 1 (host, pid 7) has another build of plug-in b.so: its hash is ffffffff, the "
              "head's 000000ab",
              "plugins.libraries", other.error().fix});
  CHECK(other.error().fix.find("copy one build to every machine") == 0);
  CHECK(other.error().fix.find("--job") != std::string::npos);

  const auto unknown = same_plugins(here, Plugins{{"c.so", 3}}, "node 2");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().message ==
        "node 2 has plug-in c.so (hash 00000000), which the head has not loaded");
}

TEST_CASE("a program of the user's own is known by what its file holds", "[engine][errors]") {
  const data::TempFolder folder;
  folder.write("own", "one build");
  const auto link = folder.path() / "exe";
  std::filesystem::create_symlink(folder.path() / "own", link);
  const auto hash = state::hash_bytes(std::as_bytes(std::span(std::string_view("one build"))));
  for (const auto& file : {folder.path() / "own", link}) {
    const auto program = identify_program(file);
    REQUIRE(program.ok());
    CHECK(program.value() == PluginIdentity{"own", hash, true});
  }
  CHECK(identify_program(folder.path() / "gone").error().code == Errc::io_failed);
}

TEST_CASE("another build of the program is refused, the same one under any name is not",
          "[engine][errors]") {
  const Plugins own{{"a.so", 1}, {"own", 0x0000'00ab'0000'0000, true}};
  CHECK(same_plugins(own, Plugins{{"copy", 0x0000'00ab'0000'0000, true}}, "node 1").ok());
  CHECK(same_plugins({}, {}, "node 1").ok());   // troupe, wherever it was built.
  CHECK(same_plugins(own, {}, "node 1").ok());  // What it lacks of the job it names itself.

  const auto other = same_plugins(own, Plugins{{"mine", 0xffff'ffff'0000'0001, true}}, "node 1");
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().message ==
        "node 1 is another build of the program: mine (hash ffffffff), the head own (hash "
        "000000ab)");
  CHECK(other.error().fix.starts_with("copy one build of the program to every machine"));
  CHECK(exit_code(other.error()) == 2);

  const auto stock = same_plugins({}, Plugins{{"mine", 0xffff'ffff'0000'0001, true}}, "node 1");
  REQUIRE_FALSE(stock.ok());
  CHECK(stock.error().message ==
        "node 1 is a program of its own, mine (hash ffffffff), and the head is troupe itself");
  CHECK(stock.error().fix.find("copies of one file") != std::string::npos);
}

TEST_CASE("a kind of stage that a node lacks is named, one that it has besides is not",
          "[engine][errors]") {
  const std::vector<std::string> here{"sentry", "frugal"};
  CHECK(same_stage_kinds(here, std::vector<std::string>{"frugal", "own", "sentry"}, "node 1").ok());
  const auto lacking = same_stage_kinds(here, std::vector<std::string>{"sentry"}, "node 1 (host)");
  REQUIRE_FALSE(lacking.ok());
  CHECK(lacking.error().code == Errc::invalid_argument);
  CHECK(lacking.error().message ==
        "node 1 (host) has no stage kind 'frugal', by which the job's stages run");
  CHECK(lacking.error().fix.find("--job") != std::string::npos);
}

}  // namespace
}  // namespace troupe::engine
