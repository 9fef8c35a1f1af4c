/* Catch2, version 2 (one header) or 3. */
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
  #include <catch2/catch_all.hpp>
using Catch::Approx;
using TestListenerBase = Catch::EventListenerBase;
#else
  #define CATCH_CONFIG_EXTERNAL_INTERFACES
  #include <catch2/catch.hpp>
using Catch::Detail::Approx;
using TestListenerBase = Catch::TestEventListenerBase;
#endif
