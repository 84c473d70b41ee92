#pragma once

#include <caf/init_global_meta_objects.hpp>

#include "troupe/actors/protocol/type_ids.hpp"

namespace troupe {

/// The first type id of your own messages: `CAF_BEGIN_TYPE_ID_BLOCK(my_service,
/// ::troupe::first_user_type_id)`. It stays when Troupe gets more messages.
inline constexpr caf::type_id_t first_user_type_id = caf::type_id_t{1000};

/// Registers all messages with CAF. Call it before the first actor system of
/// the process; later calls do nothing.
void register_messages();

/// The same with the messages of your own, which are the types of *Blocks*:
/// `register_messages<caf::id_block::my_service>()`. Call it before `init`, so
/// that ranks know them, too.
template <class... Blocks>
  requires(sizeof...(Blocks) > 0)
void register_messages() {
  static_assert(((Blocks::begin >= first_user_type_id) && ...),
                "this block of type ids overlaps with Troupe's: begin it with "
                "CAF_BEGIN_TYPE_ID_BLOCK(name, ::troupe::first_user_type_id)");
  register_messages();
  static const auto once = (caf::init_global_meta_objects<Blocks>(), ..., true);
  (void) once;
}

} // namespace troupe
