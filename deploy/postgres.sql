-- What Postgres makes of its empty volume: two databases, each with an owner who
-- cannot enter the other one. In production these are two servers, or at least
-- yours. The passwords are those in the urls that the replicas are given.
\set store_url `cat /run/secrets/store-url`
\set shop_url `cat /run/secrets/shop-url`
SELECT format('CREATE ROLE quorate LOGIN PASSWORD %L', substring(:'store_url' FROM '//[^:]+:([^@]+)@')) \gexec
SELECT format('CREATE ROLE shop LOGIN PASSWORD %L', substring(:'shop_url' FROM '//[^:]+:([^@]+)@')) \gexec

CREATE DATABASE quorate OWNER quorate;
CREATE DATABASE shop OWNER shop;
REVOKE ALL ON DATABASE quorate, shop, postgres FROM PUBLIC;

-- What the jobs of config.toml work on.
\connect shop
SET ROLE shop;
CREATE TABLE stock (
    sku   text    PRIMARY KEY,
    units integer NOT NULL CHECK (units >= 0)
);
CREATE TABLE orders (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sku      text        NOT NULL REFERENCES stock,
    quantity integer     NOT NULL CHECK (quantity > 0),
    placed   timestamptz NOT NULL,
    run_id   bigint
);
CREATE INDEX orders_open ON orders (sku) WHERE run_id IS NULL;
CREATE INDEX orders_placed ON orders (placed);
INSERT INTO stock VALUES ('apple', 1000), ('pear', 1000), ('plum', 1000);
