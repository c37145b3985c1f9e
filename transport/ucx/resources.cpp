#include "transport/ucx/resources.hpp"

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <memory>

#include "transport/ucx/log.hpp"
#include "transport/ucx/status.hpp"

namespace troupe::transport {
namespace {

using Config = std::unique_ptr<uct_md_config_t, decltype(&uct_config_release)>;
using Domain = std::unique_ptr<uct_md, decltype(&uct_md_close)>;

/// Adds what a memory domain offers. One that cannot be opened (a device that was taken away, a
/// right that is missing) offers nothing, and is no reason to keep quiet about the others.
void add_resources_of(uct_component_h component, const char* domain_name,
                      std::vector<UcxResource>& found) {
  uct_md_config_t* raw_config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &raw_config) != UCS_OK) return;
  const Config config(raw_config, uct_config_release);
  uct_md_h raw = nullptr;
  if (uct_md_open(component, domain_name, config.get(), &raw) != UCS_OK) return;
  const Domain domain(raw, uct_md_close);
  uct_tl_resource_desc_t* list = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(domain.get(), &list, &count) != UCS_OK) return;
  for (unsigned i = 0; i < count; ++i)
    found.push_back({list[i].tl_name, list[i].dev_name, list[i].dev_type == UCT_DEVICE_TYPE_NET});
  uct_release_tl_resource_list(list);
}

void add_resources_of(uct_component_h component, std::vector<UcxResource>& found) {
  uct_component_attr_t facts{};
  facts.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &facts) != UCS_OK) return;
  std::vector<uct_md_resource_desc_t> domains(facts.md_resource_count);
  facts.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  facts.md_resources = domains.data();
  if (domains.empty() || uct_component_query(component, &facts) != UCS_OK) return;
  for (const auto& domain : domains) add_resources_of(component, domain.md_name, found);
}

}  // namespace

std::string ucx_version() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

Result<std::vector<UcxResource>> ucx_resources() {
  take_over_ucx_log();
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (const auto status = uct_query_components(&components, &count); status != UCS_OK)
    return ucx_error("uct_query_components", status);
  std::vector<UcxResource> found;
  for (unsigned i = 0; i < count; ++i) add_resources_of(components[i], found);
  uct_release_component_list(components);
  take_ucx_message();  // About what could not be opened.
  return found;
}

}  // namespace troupe::transport
