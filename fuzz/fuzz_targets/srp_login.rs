//! SRP_LOGIN_REQ: the private data of a connection request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srpt::login;
use srpt::server::Settings;
use srpt::wire::PortId;
use srpt::wire::login::LoginRequest;

fuzz_target!(|bytes: &[u8]| {
    let Some(request) = LoginRequest::parse(bytes) else {
        assert!(bytes.len() < LoginRequest::LENGTH);
        return;
    };
    let settings = Settings::new(([127, 0, 0, 1], 5555).into(), PortId::default());
    if login::check(&request, &settings).is_ok() {
        assert_eq!(request.target, PortId::default());
    }
    let immediate = login::immediate(&request, &settings);
    assert!(u32::from(immediate.offset) + immediate.most <= settings.max_iu());
});
