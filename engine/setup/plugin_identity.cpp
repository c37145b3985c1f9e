#include "engine/setup/plugin_identity.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "runtime/files/read_stream.hpp"
#include "runtime/plugins/load_plugin.hpp"
#include "runtime/state/tensor_hash.hpp"

namespace troupe::engine {

namespace {

/// Its first eight hexadecimal digits: enough to tell two builds apart by eye.
std::string brief(std::uint64_t hash) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", static_cast<unsigned>(hash >> 32));
  return text.data();
}

Error other_build(const std::string& who, const PluginIdentity& theirs,
                  const PluginIdentity& ours) {
  return {
      Errc::invalid_argument,
      who + " has another build of plug-in " + theirs.name + ": its hash is " + brief(theirs.hash) +
          ", the head's " + brief(ours.hash),
      "plugins.libraries",
      "copy one build to every machine (a library that is built there anew may be another one); "
      "`troupe node --job FILE` says where a node keeps it"};
}

Error unknown_to_head(const std::string& who, const PluginIdentity& theirs) {
  return {Errc::invalid_argument,
          who + " has plug-in " + theirs.name + " (hash " + brief(theirs.hash) +
              "), which the head has not loaded",
          "plugins.libraries",
          "give every machine the same plug-ins, in the job as in a job file of the node's own"};
}

Error other_program(const std::string& who, const PluginIdentity& theirs,
                    std::span<const PluginIdentity> here) {
  const auto ours = std::ranges::find(here, true, &PluginIdentity::is_program);
  const std::string of_theirs = theirs.name + " (hash " + brief(theirs.hash) + ")";
  if (ours == here.end())
    return {Errc::invalid_argument,
            who + " is a program of its own, " + of_theirs + ", and the head is troupe itself",
            {},
            "start the head and its nodes as one program: copies of one file"};
  return {Errc::invalid_argument,
          who + " is another build of the program: " + of_theirs + ", the head " + ours->name +
              " (hash " + brief(ours->hash) + ")",
          {},
          "copy one build of the program to every machine (one that is built there anew may be "
          "another one)"};
}

std::uint64_t hash_of(std::string_view content) {
  return state::hash_bytes(std::as_bytes(std::span(content)));
}

}  // namespace

std::vector<PluginIdentity> identify_plugins() {
  std::vector<PluginIdentity> identities;
  for (const auto& plugin : plugins::loaded_plugins())
    identities.push_back({plugin.name, hash_of(plugin.content)});
  return identities;
}

Result<PluginIdentity> identify_program(const std::filesystem::path& file) {
  const auto content = files::read_whole(file);
  if (!content)
    return Error{Errc::io_failed, "the program's own file cannot be read", file.string(),
                 "it tells this build from others: let the user that runs it read it"};
  std::error_code fault;
  const auto target = std::filesystem::read_symlink(file, fault);
  return PluginIdentity{(fault ? file : target).filename().string(), hash_of(*content), true};
}

Status same_plugins(std::span<const PluginIdentity> here, std::span<const PluginIdentity> there,
                    const std::string& who) {
  for (const PluginIdentity& theirs : there) {
    if (std::ranges::find(here, theirs.hash, &PluginIdentity::hash) != here.end()) continue;
    if (theirs.is_program) return other_program(who, theirs, here);
    const auto ours = std::ranges::find(here, theirs.name, &PluginIdentity::name);
    return ours == here.end() ? unknown_to_head(who, theirs) : other_build(who, theirs, *ours);
  }
  return Done{};
}

Status same_stage_kinds(std::span<const std::string> here, std::span<const std::string> there,
                        const std::string& who) {
  for (const std::string& kind : here)
    if (std::ranges::find(there, kind) == there.end())
      return Error{Errc::invalid_argument,
                   who + " has no stage kind '" + kind + "', by which the job's stages run",
                   "plugins.libraries",
                   "put its plug-in on that machine where the job says, or start the node with "
                   "--job and a job file whose plugins.libraries say where it is"};
  return Done{};
}

}  // namespace troupe::engine
