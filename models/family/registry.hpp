// All families that a job can name: the built-in ones, and those that a program or plug-in adds.

#pragma once

#include <string>
#include <vector>

#include "models/family/family.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::models {

/// Adds a family for the rest of the process. Call it before a job is read: whoever has looked at
/// the list already does not see it. Thread-safe; addresses of families stay as they are.
///
/// Errors: invalid_argument: a name that is taken or no `is_list_name`, a member that its kind
/// needs is not set, or answers that contradict each other for the defaults, as `describe_module`
/// checks them for the configuration of a job. Names the member.
Status register_family(Family family);

/// In the order in which they came; built-in ones first.
std::vector<const Family*> families();

/// The family of this name, or nullptr.
const Family* find_family(const std::string& name);

/// The module's family, after checking that kind and configuration belong to it.
/// Errors: invalid_argument, with the field and the fix.
Result<const Family*> family_of(const ModuleConfig& module);

/// The same of a module that has passed `family_of`, as all of a job that was read have.
const Family& checked_family(const ModuleConfig& module);

/// What the module takes of a sample; `Medium::none` where it is no encoder.
MediaInput media_input(const ModuleConfig& module);

/// Layers of one module; `all` are the modules of the model.
///
/// Errors:
/// - invalid_argument: unknown family, another kind of module than the family, or sizes that do
///   not fit. Names the module, the field, both values, and the fix. Also a family that throws, or
///   contradicts itself: other numbers of layers in `sizes`, `describe` and `works`; names of
///   parameters, layers and kinds that do not begin with the module's, or stand twice; a shape
///   with a side below 1; a tied use of nothing before, or of another shape; a split of what is no
///   matrix; costs that nobody can count with; rows without columns, or of other ones in `sizes`
///   and `describe`; sizes that no media can be cut by, a scale of pixels that does not tell bytes
///   apart, or a square that no merged patch fits in.
Result<ModuleDescription> describe_module(const ModuleConfig& module,
                                          const std::vector<ModuleConfig>& all);

/// What the layers of a module compute; widths as its neighbours have them. REQUIRES: `all` passed
/// `describe_module`.
std::vector<LayerWork> module_works(const ModuleConfig& module,
                                    const std::vector<ModuleConfig>& all);

/// An `Error` about a module's configuration.
Error config_error(const ModuleConfig& module, std::string field, std::string message,
                   std::string fix);

}  // namespace troupe::models
