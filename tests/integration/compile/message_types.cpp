// What the compiler says about messages to ranks whose ids are those of Troupe,
// or that have none.

#include <troupe/actors.hpp>

struct question {};

template <class Inspector>
bool inspect(Inspector& f, question& x) {
  return f.object(x).fields();
}

#ifdef WITHOUT_ID

bool is_there(troupe::rank_mailbox& mailbox) {
  return mailbox.try_receive<question>().has_value();
}

#else

CAF_BEGIN_TYPE_ID_BLOCK(my_service, caf::first_custom_type_id + 500)
CAF_ADD_TYPE_ID(my_service, (question))
CAF_END_TYPE_ID_BLOCK(my_service)

void start() {
  troupe::register_messages<caf::id_block::my_service>();
}

#endif
