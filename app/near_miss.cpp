#include "app/near_miss.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>

#include "app/terminal.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::app {

namespace {

std::vector<std::string> commands_of(const CLI::App& parent) {
  std::vector<std::string> names;
  for (const auto* command : parent.get_subcommands({}))
    if (!command->get_name().empty()) names.push_back(command->get_name());
  return names;
}

/// What a command takes itself, before one of those below it: `RUN` of `troupe ctl`.
std::vector<std::string> own_words_of(const CLI::App& command) {
  std::vector<std::string> names;
  if (commands_of(command).empty()) return names;
  for (const auto* option : command.get_options())
    if (option->get_positional()) names.push_back(option->get_name(/*positional=*/true));
  return names;
}

/// `did you mean `troupe ctl RUN drain`?`, or where the commands stand.
std::string near_command(const CLI::App& parent, const std::string& path, const std::string& word) {
  const auto near = nearest_word(word, commands_of(parent));
  if (near.empty()) return "`" + path + " --help` lists the commands";
  std::string words = path;
  for (const auto& name : own_words_of(parent)) words += " " + name;
  return "did you mean `" + words + " " + near + "`?";
}

/// Where to find what a command is for that other programs have and Troupe has not; empty: it is
/// none of these. Whatever is spelled nearly so does something else.
std::string instead_of(const std::string& word) {
  if (word == "export")
    return "none is needed: model/model.safetensors of the run folder has the trained parameters, "
           "by Hugging Face's names behind those of modules";
  if (word == "generate")
    return "Troupe trains alone: what generates text may load model/model.safetensors of the run "
           "folder";
  return {};
}

/// Without dashes: `json`, `n`. Hidden ones are left out.
std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const auto& name : option->get_lnames()) names.push_back(name);
    for (const auto& name : option->get_snames()) names.push_back(name);
  }
  return names;
}

/// A word that begins like a flag; -1 and -.5 are numbers.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

bool is_known_flag(const CLI::App& command, const std::string& word) {
  const bool is_long = word.starts_with("--");
  for (const auto* option : command.get_options()) {
    const auto& names = is_long ? option->get_lnames() : option->get_snames();
    // A short one may have its value, or other short ones, right behind it.
    const std::string name = is_long ? word.substr(2, word.find('=') - 2) : word.substr(1, 1);
    if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  }
  return false;
}

bool takes_keys(const CLI::App& command) {
  const auto options = command.get_options();
  return std::any_of(options.begin(), options.end(),
                     [](const auto* option) { return option->get_name() == "OVERRIDES"; });
}

/// `--train.steps=10`, or `--train.steps` before the word 10.
struct FlagWord {
  std::string name;  ///< Without dashes.
  std::string value;
};

FlagWord take_apart(const std::vector<std::string>& words, std::size_t at) {
  const std::string& word = words[at];
  const auto equals = word.find('=');
  FlagWord flag{word.substr(word.find_first_not_of('-'), std::string::npos), "VALUE"};
  if (equals != std::string::npos) {
    flag.name = flag.name.substr(0, flag.name.find('='));
    flag.value = word.substr(equals + 1);
  } else if (at + 1 < words.size() && !is_flag(words[at + 1])) {
    flag.value = words[at + 1];
  }
  return flag;
}

Error unknown_flag(const CLI::App& command, const std::string& path,
                   const std::vector<std::string>& words, std::size_t at) {
  const FlagWord flag = take_apart(words, at);
  const auto flags = flags_of(command);
  const bool keys = takes_keys(command);
  const auto near_key = keys ? job::nearest_key(flag.name) : job::NearKey{};
  const auto near_flag = nearest_word(flag.name, flags);
  const bool is_flag_name = std::find(flags.begin(), flags.end(), flag.name) != flags.end();
  const bool is_key =
      !is_flag_name && (flag.name.find('.') != std::string::npos || near_key.is_exact);
  const std::string what = "`" + path + "` has no flag '" + words[at] + "'";
  if (!near_key.instead.empty() && near_flag.empty())
    return usage_error(what, "keys of the job file have no dashes: " + near_key.instead);
  if (!near_key.path.empty() && (is_key || near_flag.empty()))
    return usage_error(what, "a key of the job file has no dashes: did you mean " + near_key.path +
                                 "=" + flag.value + "?");
  if (near_flag.empty()) return usage_error(what, "`" + path + " --help` shows what it takes");
  return usage_error(
      what, "did you mean " + std::string(near_flag.size() > 1 ? "--" : "-") + near_flag + "?");
}

}  // namespace

const CLI::App* find_command(const CLI::App& parent, const std::string& name) {
  for (const auto* command : parent.get_subcommands({}))
    if (command->get_name() == name) return command;
  return nullptr;
}

Error unknown_command(const CLI::App& parent, const std::string& path, const std::string& word) {
  const bool is_root = parent.get_parent() == nullptr;
  const std::string what = is_root ? "no command is called '" + word + "'"
                                   : "`" + path + "` has no command '" + word + "'";
  // Who names a job alone wants to train it.
  if (is_root && word.ends_with(".toml"))
    return usage_error(what, "did you mean `troupe train " + word + "`?");
  if (const auto instead = instead_of(word); is_root && !instead.empty())
    return usage_error(what, instead);
  return usage_error(what, near_command(parent, path, word));
}

Error explain_refusal(const CLI::App& root, const std::vector<std::string>& words,
                      const std::string& what, bool is_value_wrong) {
  const CLI::App* command = &root;
  std::string path = "troupe";
  std::size_t at = 0, own = 0;
  for (; at < words.size() && !is_flag(words[at]); ++at) {
    if (own > 0) {  // Whatever it is called.
      --own;
      continue;
    }
    const auto* next = find_command(*command, words[at]);
    if (next == nullptr) break;
    command = next;
    path += " " + words[at];
    own = own_words_of(*command).size();
  }
  const bool has_commands = !commands_of(*command).empty();
  if (has_commands && at < words.size() && !is_flag(words[at]))
    return unknown_command(*command, path, words[at]);
  // The last one may be meant for a command whose own words are missing.
  if (has_commands && at == words.size() && own == 0 && !own_words_of(*command).empty())
    return usage_error(what, near_command(*command, path, words.back()));
  for (; !is_value_wrong && at < words.size() && words[at] != "--"; ++at)
    if (is_flag(words[at]) && !is_known_flag(*command, words[at]))
      return unknown_flag(*command, path, words, at);
  return usage_error(what, "`" + path + " --help` " +
                               (has_commands ? "lists the commands" : "shows what it takes"));
}

}  // namespace troupe::app
