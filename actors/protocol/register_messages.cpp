#include "troupe/actors/protocol/register_messages.hpp"

#include <mutex>

#include <caf/init_global_meta_objects.hpp>
#include <caf/io/middleman.hpp>

#include "troupe/actors/protocol/error_code.hpp"

namespace troupe {

using namespace internal;

static_assert(caf::id_block::troupe::end <= first_user_type_id);

void register_messages() {
  static std::once_flag once;
  std::call_once(once, [] {
    caf::core::init_global_meta_objects();
    caf::io::middleman::init_global_meta_objects();
    caf::init_global_meta_objects<caf::id_block::troupe>();
  });
}

} // namespace troupe
