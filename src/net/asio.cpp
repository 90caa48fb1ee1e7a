// Compiles Asio's own code.
#include <boost/asio/impl/src.hpp>
